"""The built page is what its sources give, is small, and names the licences of what is inside."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from credibly.explore import built

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
HOW = (
    "the explorer is built again with npm and node 20 or newer: install them, and run `npm ci` in "
    "web/ where the npm registry can be reached"
)


def digest_of_sources():
    names = [
        path.relative_to(WEB).as_posix() for path in (WEB / "src").rglob("*") if path.is_file()
    ]
    found = hashlib.sha256()
    for name in sorted([*names, "build.mjs", "package-lock.json"]):
        content = (WEB / name).read_bytes()
        found.update(f"{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


@pytest.fixture(scope="module")
def libraries():
    """The installed build tools; a test that needs them says what is missing."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip(HOW)
    locked = json.loads((WEB / "package-lock.json").read_text("utf-8"))["packages"]
    for name in (
        "esbuild",
        "preact",
        "@preact/signals",
        "@preact/signals-core",
        "uplot",
        "hyparquet",
    ):
        about = WEB / "node_modules" / name / "package.json"
        version = locked[f"node_modules/{name}"]["version"]
        if not about.is_file() or json.loads(about.read_text("utf-8"))["version"] != version:
            pytest.skip(HOW)
    return node


def test_the_built_page_was_built_from_these_sources():
    first = built.part("explorer.js").partition("\n")[0]
    assert digest_of_sources() in first, "web/ was changed: run `make explorer`"


def test_the_same_bytes_are_built_again(libraries, tmp_path):
    subprocess.run(  # noqa: S603
        [libraries, "build.mjs", str(tmp_path)], cwd=WEB, check=True, capture_output=True
    )
    for name in built.PARTS:
        assert (tmp_path / name).read_bytes() == built.part(name).encode("utf-8"), name


def test_the_data_functions_pass_their_own_tests(libraries):
    done = subprocess.run(  # noqa: S603
        [libraries, "--test", "tests/"], cwd=WEB, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"^# pass [1-9]", done.stdout, re.MULTILINE)


def test_the_page_is_at_most_200_kilobytes():
    size = sum(len(built.part(name).encode()) for name in ("explorer.js", "explorer.css"))
    assert size <= 200_000


def test_nothing_built_names_another_machine_or_evaluates_text():
    for name in ("explorer.js", "explorer.css", "common.css"):
        text = built.part(name)
        assert set(re.findall(r"https?://[^\s\"'`)]+", text)) <= {
            "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml",
            "http://www.w3.org/1998/Math/MathML", "http://www.w3.org/1999/xlink",
        }, name  # fmt: skip
        assert not re.search(r"\beval\(|new Function\(|@import", text), name


def test_every_bundled_library_has_its_licence():
    lock = json.loads((WEB / "package-lock.json").read_text("utf-8"))["packages"]
    text = built.part("LICENSES.txt")
    for name in ("preact", "@preact/signals", "@preact/signals-core", "uplot", "hyparquet"):
        about = lock[f"node_modules/{name}"]
        assert f"{name} {about['version']} ({about['license']})" in text
    assert "Permission is hereby granted" in text


def test_the_lock_file_names_no_registry():
    assert "resolved" not in (WEB / "package-lock.json").read_text("utf-8")
