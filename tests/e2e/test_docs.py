"""What the pages point at exists: links, anchors, pictures, tests, modules and names."""

import re
from pathlib import Path

import pytest

import credibly as cr

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]

pytestmark = pytest.mark.parametrize("page", PAGES, ids=NAMES)


def prose(page):
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    titles = re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_relative_links_and_pictures_exist(page):
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert target.resolve().is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link


def test_tests_that_are_named_exist(page):
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", prose(page)):
        assert (ROOT / path).is_file(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text("utf-8"), name


def test_commands_name_modules_that_exist(page):
    for name in re.findall(
        r"python -m ((?:examples|benchmarks|experiments)[\w.]*\w)", page.read_text()
    ):
        path = ROOT / name.replace(".", "/")
        known = path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
        assert known or name == "examples.NAME", name


def test_names_of_the_package_exist(page):
    names = set(re.findall(r"\bcr\.(\w+)", page.read_text("utf-8")))
    assert names <= set(cr.__all__), names - set(cr.__all__)


def test_no_page_mentions_a_place_on_a_machine(page):
    found = re.findall(r"(?:/home/|/Users/|/root/|/tmp/|[A-Z]:\\\\)\S*", page.read_text("utf-8"))
    assert found == []
