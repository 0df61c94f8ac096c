"""Build the site: `python -m docs.build` (or `make docs`) writes static files into site/.

The pages are what stands in the repository, with the same relative links, plus two that are
written here: the API from the docstrings and the commands from their help. The build is strict:
a link or an anchor to nothing, a page that is in no menu, a menu entry without a page, and
anything that a browser would load from another machine are errors.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import yaml

from docs.reference_pages import reference_pages

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "docs"
"""Copies of the pages, of mkdocs.yml and what is built: all that a build leaves but site/."""

SITE = ROOT / "site"
FRONT = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CITATION.cff")
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser fetches by itself, and where its address stands."""


def stage_pages(stage: Path) -> list[str]:
    """Copy pages, pictures and the files that they link to; the names of all pages."""
    shutil.rmtree(stage, ignore_errors=True)
    sources = [ROOT / name for name in FRONT]
    sources += [p for kind in ("*.md", "*.png", "*.css") for p in (ROOT / "docs").rglob(kind)]
    for source in sources:
        _copy(source, stage)
        if source.suffix == ".md":
            for target in _linked(source):
                _copy(target, stage)
    for name, text in reference_pages().items():
        path = stage / "docs" / "reference" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return sorted(str(page.relative_to(stage)) for page in stage.rglob("*.md"))


def _copy(source: Path, stage: Path) -> None:
    target = stage / source.relative_to(ROOT)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _linked(page: Path) -> Iterator[Path]:
    """Files of the repository that a page links to: results, pictures, examples."""
    for link in re.findall(r"\]\(([^)\s#]+)", page.read_text("utf-8")):
        target = (page.parent / link).resolve()
        if target.is_file() and target.is_relative_to(ROOT):
            yield target


def pages_in_menu(node: object) -> Iterator[str]:
    """Every page that the `nav` of mkdocs.yml names, at any depth."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, list):
        for item in node:
            yield from pages_in_menu(item)
    elif isinstance(node, dict):
        for item in node.values():
            yield from pages_in_menu(item)


def menu_faults(pages: list[str], menu: list[str]) -> list[str]:
    """Pages in no menu, menu entries without a page, and pages that are named twice."""
    faults = [f"{page} is in no menu: add it to nav in mkdocs.yml" for page in pages]
    faults = [fault for fault in faults if fault.partition(" ")[0] not in menu]
    faults += [f"nav names {page}, which does not exist" for page in set(menu) - set(pages)]
    return faults + [f"nav names {page} twice" for page in set(menu) if menu.count(page) > 1]


def placeholders(text: str) -> list[str]:
    """Names in capitals that wait for a number, outside of code."""
    prose = re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    return re.findall(r"\b[A-Z]{3,}_[A-Z_]{3,}\b|\b(?:TODO|FIXME|TBD)\b", prose)


class _Fetches(HTMLParser):
    """Addresses that a page makes the browser fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "link" and values.get("rel") == "canonical":
            return
        address = values.get(LOADED.get(tag, ""))
        if address:
            self.found.append(address)


def outside_requests(html: str) -> list[str]:
    """Addresses on other machines that a page would load."""
    parser = _Fetches()
    parser.feed(html)
    return [address for address in parser.found if re.match(r"(?:[a-z]+:)?//", address)]


def site_faults(site: Path) -> list[str]:
    """What the built pages would fetch from elsewhere, by page."""
    return [
        f"{page.relative_to(site)} loads {address}"
        for page in sorted(site.rglob("*.html"))
        for address in outside_requests(page.read_text("utf-8"))
    ]


def build_site(work: Path = WORK) -> list[str]:
    """Build the pages into `work / "site"`; what is wrong with them."""
    pages = stage_pages(work / "pages")
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    faults = menu_faults(pages, list(pages_in_menu(yaml.safe_load(settings)["nav"])))
    faults += [
        f"{page} still says {word}"
        for page in pages
        if (ROOT / page).exists()  # what is written from the code has names of its own
        for word in placeholders((work / "pages" / page).read_text("utf-8"))
    ]
    if faults:
        return faults
    shutil.copyfile(ROOT / "mkdocs.yml", work / "mkdocs.yml")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(  # noqa: S603
        [*command, "--config-file", str(work / "mkdocs.yml")],
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"},
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        return [line for line in done.stdout.splitlines() if "Warning" in line] or [done.stderr]
    return site_faults(work / "site")


def main() -> int:
    """Build; 0 if all is well."""
    faults = build_site()
    print(*faults, sep="\n", end="", file=sys.stderr)
    if not faults:
        shutil.rmtree(SITE, ignore_errors=True)
        shutil.copytree(WORK / "site", SITE)
        print(f"open {SITE.name}/index.html, or: python -m http.server --directory {SITE.name}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
