"""Rules about the code itself."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import credibly as cr

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "credibly"
ORDER = [
    "model", "problem", "solve", "profile", "decide", "evaluate", "estimator", "data", "batch",
    "report", "cli",
]  # fmt: skip
COMMON = {"types", "errors", "version"}


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("folder", ORDER)
def test_a_folder_imports_only_from_folders_before_it(folder):
    allowed = {*ORDER[: ORDER.index(folder) + 1], *COMMON}
    for path in (PACKAGE / folder).rglob("*.py"):
        for module in imports_of(path):
            if module.startswith("credibly."):
                assert module.split(".")[1] in allowed, f"{path.name} imports {module}"


def test_every_folder_is_in_the_order():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert folders == set(ORDER)


def test_only_one_place_differentiates():
    allowed = {PACKAGE / "model" / "derivatives.py"}
    for path in PACKAGE.rglob("*.py"):
        if path not in allowed:
            text = path.read_text("utf-8")
            assert "autograd.grad" not in text, path
            assert ".backward(" not in text, path


def test_nothing_unpickles_or_evaluates():
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            assert name not in {"eval", "exec", "torch.load", "pickle.load", "pickle.loads"}, path


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, credibly; "
        "heavy = {'torch', 'numpy', 'matplotlib', 'pandas', 'rich', 'sklearn', 'typer', 'jinja2'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_using_the_package_does_not_load_the_extras():
    code = (
        "import sys, torch, credibly as cr; "
        "p = cr.credibility(cr.Classifier(lambda x: x), torch.randn(2, 3), gamma=1.0); "
        "heavy = {'matplotlib', 'pandas', 'rich', 'sklearn', 'typer', 'jinja2', 'pyarrow'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_every_public_name_exists_and_has_a_docstring():
    for name in cr.__all__:
        value = getattr(cr, name)
        assert name == "__version__" or value.__doc__, name


def test_every_public_name_is_explained_in_the_docs():
    text = "".join(path.read_text("utf-8") for path in (ROOT / "docs").glob("*.md"))
    missing = [name for name in cr.__all__ if name not in text and name != "__version__"]
    assert missing == []


def test_files_stay_readable():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in PACKAGE.rglob("*.py")
        if path != PACKAGE / "__init__.py"  # a list of names
        and (lines := len(path.read_text("utf-8").splitlines())) > 320
    }
    assert long == {}
