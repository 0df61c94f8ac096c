"""The site as a reader uses it: built by one command, strict, linked, searchable, on its own."""

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import pytest
import yaml
from filelock import FileLock

import credibly as cr
from docs import build
from docs.docstrings import readable

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The built site; one build, whichever worker of pytest-xdist comes first."""
    work = tmp_path_factory.getbasetemp().parent / "site-of-this-run"
    with FileLock(f"{work}.lock"):
        if not (work / "site").is_dir():
            assert build.build_site(work) == []
    return work / "site"


def links_of(html):
    return re.findall(r'<a [^>]*?href="([^"]+)"', html)


def test_every_link_and_anchor_of_every_page_leads_somewhere(site):
    texts = {page: page.read_text("utf-8") for page in site.rglob("*.html")}
    assert len(texts) > 30
    for page, text in texts.items():
        for link in links_of(text):
            if re.match(r"(?:https?|mailto):", link) or page.name == "404.html":
                continue
            address, anchor = urldefrag(urljoin(page.as_uri(), link))
            target = Path(address.removeprefix("file://"))
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), (page.name, link)
            if anchor and target.suffix == ".html":
                assert f'id="{anchor}"' in texts[target], (page.name, link)


def test_every_public_name_and_command_is_in_the_reference(site):
    for name in cr.__all__:
        space = (ROOT / "src" / "credibly" / name).with_suffix(".py").is_file() or (
            ROOT / "src" / "credibly" / name / "__init__.pyi"
        ).is_file()
        if space:
            assert (site / f"docs/reference/api/{name}.html").is_file(), name
        elif not name.startswith("__"):
            text = (site / "docs/reference/api/credibly.html").read_text("utf-8")
            assert f'id="credibly.{name}"' in text, name
    commands = (site / "docs/reference/commands.html").read_text("utf-8")
    for command in ("fit", "judge", "score", "decide", "evaluate"):
        assert f"credibly {command}" in commands
        assert "--false-alarms" in commands


def test_pages_say_first_what_their_reader_can_do(tmp_path):
    for page in build.stage_pages(tmp_path):
        if page.startswith("docs/"):
            text = (tmp_path / page).read_text("utf-8")
            first = re.sub(r"^# .*$", "", text, count=1, flags=re.MULTILINE).strip()
            assert first.startswith("After this page you"), page


def test_a_reader_follows_the_menu_and_searches(site, page, serve_folder):
    with serve_folder(site) as address:
        page.goto(f"{address}/index.html")
        page.get_by_role("link", name="How-to guides").first.click()
        page.get_by_role("link", name="Decide by a rule").first.click()
        page.get_by_role("heading", level=1).wait_for()
        assert page.url.endswith("/docs/how-to/decisions.html")
        page.get_by_role("button", name="Search").first.click()
        page.keyboard.type("Venn-Abers", delay=10)
        page.get_by_text(re.compile(r"\d+ results?$")).first.wait_for()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"\?h=Venn-Abers"))  # a place with that word
        page.get_by_role("article").get_by_text("Venn-Abers").first.wait_for()


def test_the_site_loads_nothing_from_elsewhere(site):
    assert build.site_faults(site) == []


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://elsewhere.example/a.js"></script>',
        '<link rel="stylesheet" href="//elsewhere.example/a.css">',
        '<img src="http://elsewhere.example/a.png">',
    ],
)
def test_a_page_that_loads_from_elsewhere_is_found(html):
    assert len(build.outside_requests(html)) == 1


@pytest.mark.parametrize(
    "html",
    ['<a href="https://elsewhere.example">', '<img src="a.png">', '<script src="../a.js">'],
)
def test_links_and_own_files_are_allowed(html):
    assert build.outside_requests(html) == []


def test_pages_that_no_menu_names_and_menus_without_a_page_are_faults():
    assert build.menu_faults(["a.md"], ["a.md"]) == []
    assert "a.md is in no menu" in build.menu_faults(["a.md"], [])[0]
    assert "does not exist" in build.menu_faults([], ["a.md"])[0]
    assert "twice" in build.menu_faults(["a.md"], ["a.md", "a.md"])[0]


@pytest.mark.parametrize("broken", ["[x](nowhere.md)", "[x](page.md#nowhere)"])
def test_the_builder_refuses_a_broken_link(tmp_path, broken):
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    settings |= {"nav": ["page.md"], "plugins": ["search"]}
    (tmp_path / "pages").mkdir()
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(settings), "utf-8")
    for text, expected in [("# A page\n\nAll is well.\n", 0), (f"# A page\n\n{broken}\n", 1)]:
        (tmp_path / "pages" / "page.md").write_text(text, "utf-8")
        command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
        done = subprocess.run(  # noqa: S603
            command, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == expected, done.stdout + done.stderr


def test_docstrings_become_examples_and_links():
    said = readable("Does it.\n\nExample:\n    >>> 1\n    1\n\nSee docs/how-to/judge.md.")
    assert "\nExamples:\n" in said
    assert "[how-to/judge](../../how-to/judge.md)." in said
