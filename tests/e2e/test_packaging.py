"""What is published, as who installs it meets it: built, installed where nothing is, and tried."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import credibly as cr
from tests import lowest

ROOT = Path(__file__).parents[2]
TRIED = """
import sys, torch
import credibly as cr
from credibly.data.sample import classifier, load_sample

assert cr.__file__.startswith(sys.prefix), cr.__file__
sample = load_sample()
judge = cr.Judge.fit(classifier(), sample.images[:150], sample.labels[:150])
found = judge(torch.cat([sample.images[150:170], 1 - sample.images[150:170]]))
found.explore(labels=None, details=1).save("page.html")
print(cr.__version__, len(found), int(found.accepted.sum()))
"""


UNREACHED = (
    "Could not find a version",
    "No matching distribution",
    "Connection",
    "Temporary failure",
)


def run(*command, cwd=ROOT):
    done = subprocess.run(  # noqa: S603
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is made from it."""
    for needed in ("build", "hatchling"):
        pytest.importorskip(needed, reason=f"pip install {needed}")
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


def test_the_wheel_holds_the_package_and_nothing_else(built):
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
    info = f"credibly-{cr.__version__}.dist-info"
    assert {name.split("/")[0] for name in names} == {"credibly", info}
    package = ROOT / "src" / "credibly"
    kept = {
        f"credibly/{path.relative_to(package)}"
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert kept <= names
    assert {f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"} <= names
    assert built[1].stat().st_size < 3_000_000


def test_the_source_distribution_can_be_tested_and_leaves_out_what_is_installed(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for needed in ("Makefile", "mkdocs.yml", "web/package-lock.json", "tests/conftest.py"):
        assert needed in names
    assert [name for name in names if "node_modules" in name or name.endswith(".pyc")] == []
    assert built[0].stat().st_size < 8_000_000


def test_wheel_and_sdist_work_in_an_empty_environment(built, tmp_path):
    """All that they declare is installed, and nothing else; constraints keep torch for the CPU."""
    place = tmp_path / "environment"
    run(sys.executable, "-m", "venv", place)
    python = place / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-compile"]
    install += ["--constraint", ROOT / "constraints.txt"]
    done = subprocess.run(  # noqa: S603
        [*map(str, install), f"{built[1]}[standard]"], capture_output=True, text=True, check=False
    )
    if done.returncode and any(words in done.stderr for words in UNREACHED):
        pytest.skip("the dependencies are installed from a package index: none was reached")
    assert done.returncode == 0, done.stderr
    for _ in range(2):
        version, judged, trusted = run(python, "-c", TRIED, cwd=tmp_path).split()
        assert (version, judged) == (cr.__version__, "40")
        assert 0 < int(trusted) < 40
        run(*install, "--force-reinstall", "--no-deps", built[0])  # and now the sdist
    assert (tmp_path / "page.html").stat().st_size > 200_000
    assert version in run(place / "bin" / "credibly", "--version", cwd=tmp_path)
    run(place / "bin" / "credibly", "sample", "--out", "sample.npz", cwd=tmp_path)
    assert (tmp_path / "sample.npz").is_file()


def test_the_lowest_versions_exist_together(tmp_path):
    """`python -m tests.lowest` also installs them and tests with them."""
    pytest.importorskip("uv", reason="pip install uv")
    pins = tmp_path / "lowest.txt"
    try:
        lowest.resolve(pins)
    except lowest.UvError as error:
        if "Failed to fetch" in str(error):
            pytest.skip("the lowest versions are looked up in a package index: none was reached")
        raise
    found = dict(line.split("==") for line in pins.read_text("utf-8").split() if "==" in line)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for extra in ("cli", "report", "table", "images"):
        for wanted in project["optional-dependencies"][extra]:
            name, _, least = wanted.partition(">=")
            assert found[name] == least or found[name].startswith(f"{least}."), name
