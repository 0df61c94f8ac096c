"""A Chromium that looks at our pages, and notes what a page must not do.

Tests take `page`; at the end no script may have failed and nothing may have been asked of another
machine. Without Chromium they are skipped, and say how to get it.
"""

import functools
import http.server
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

HOW_TO_GET_IT = (
    "pages are tried in Chromium, and there is none: install the package `chromium` of your "
    "system, or run `python -m playwright install chromium`"
)
QUIET = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
OWN = ("http://127.0.0.1", "http://localhost", "file:", "data:", "blob:", "about:")


def find_chromium(playwright):
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if found := shutil.which(name):
            return found
    own = playwright.chromium.executable_path
    return own if Path(own).exists() else None


@pytest.fixture(scope="module")
def chromium():
    """For one module: while it lives, so does playwright's loop, and no other could run."""
    api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with api.sync_playwright() as playwright:
        path = find_chromium(playwright)
        if path is None:
            pytest.skip(HOW_TO_GET_IT)
        browser = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield browser
        browser.close()


@pytest.fixture
def page(chromium):
    """A fresh tab; `page.faults` lists errors of scripts and requests to other machines."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.set_default_timeout(20_000)
    tab.faults = []
    tab.on("pageerror", lambda error: tab.faults.append(f"error: {error}"))
    tab.on("console", lambda said: said.type == "error" and tab.faults.append(said.text))
    tab.on("request", lambda sent: sent.url.startswith(OWN) or tab.faults.append(sent.url))
    yield tab
    context.close()
    assert tab.faults == []


@contextmanager
def serving(folder: Path):
    """The address of a folder, served on loopback as any web server would."""
    handler = functools.partial(_Silent, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture(scope="session")
def serve_folder():
    return serving


class _Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
