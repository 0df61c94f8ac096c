"""Rules about the code itself."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import credibly as cr

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "credibly"
ORDER = [
    "errors", "version", "_extras", "types", "_validation", "_notebook", "model", "losses",
    "adapters", "io", "data", "problem", "solve", "solvers", "profile", "plot", "explore",
    "theory", "metrics", "decide", "scores", "baselines", "attacks", "study", "batch", "ray",
    "serve", "report", "estimator", "cli",
]  # fmt: skip
"""Data flows from left to right, and so do imports."""

NAMESPACES = (
    "attacks", "baselines", "errors", "losses", "metrics", "ray", "scores", "solvers", "study",
    "theory",
)  # fmt: skip
SOURCES = [path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.stem in ORDER]


def part_of(path):
    """The folder of the package, or the module beside the folders, that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def own(modules):
    return {name.split(".")[1] for name in modules if name.startswith("credibly.")} & set(ORDER)


@pytest.mark.parametrize("part", ORDER)
def test_a_folder_imports_only_from_folders_before_it(part):
    allowed = set(ORDER[: ORDER.index(part) + 1])
    for path in SOURCES:
        if part_of(path) == part:
            found = own(imports_of(ast.parse(path.read_text("utf-8"))))
            assert found <= allowed, f"{path} imports {found - allowed}"


def test_every_part_is_in_the_order():
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    files = {path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")}
    assert folders | files == set(ORDER)


def test_no_import_inside_a_function_hides_a_cycle():
    """Inside functions only optional libraries are loaded.

    Figures load matplotlib, so what draws them is loaded when it draws; and the command line loads
    what a command needs when it runs.
    """
    for path in SOURCES:
        if part_of(path) in ("cli", "plot", "report"):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                hidden = {n for n in imports_of(function) if n.startswith("credibly.")}
                assert not hidden, f"{path}: {function.name} imports {sorted(hidden)}"


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


def loaded_by(code):
    script = f"import sys; {code}; print(*sorted({{n.split('.')[0] for n in sys.modules}}))"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy():
    heavy = {"torch", "numpy", "matplotlib", "pandas", "rich", "sklearn", "typer", "jinja2"}
    assert loaded_by("import credibly") & heavy == set()


def test_using_the_package_does_not_load_the_extras():
    heavy = {"matplotlib", "pandas", "rich", "sklearn", "typer", "jinja2", "pyarrow"}
    code = (
        "import torch, credibly as cr; "
        "cr.credibility(cr.Classifier(lambda x: x), torch.randn(2, 3), gamma=1.0)"
    )
    assert loaded_by(code) & heavy == set()


def public_names():
    for name in cr.__all__:
        if name != "__version__" and not inspect.ismodule(getattr(cr, name)):
            yield name, getattr(cr, name)
    for space in NAMESPACES:
        module = getattr(cr, space)
        listed = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
        ]
        yield from ((f"{space}.{name}", getattr(module, name)) for name in listed)


NAMES = dict(public_names())


def test_the_door_is_small():
    assert len([name for name in NAMES if "." not in name]) <= 38


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_documented_with_an_example(name):
    value = NAMES[name]
    if not callable(value):  # a constant has its text where it is defined
        return
    text = inspect.getdoc(value) or ""
    assert text, name
    assert name.startswith("errors.") or "Example:" in text or ">>>" in text, name


def test_every_public_name_is_explained_in_the_docs():
    text = "".join(path.read_text("utf-8") for path in (ROOT / "docs").rglob("*.md"))
    missing = [name for name in NAMES if name.rpartition(".")[2] not in text]
    assert missing == []


def test_files_stay_readable():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in PACKAGE.rglob("*.py")
        if (lines := len(path.read_text("utf-8").splitlines())) > 320
    }
    assert long == {}


def test_the_first_profile_does_not_load_the_compiler_of_torch():
    code = (
        "import torch, credibly as cr; net = torch.nn.Linear(3, 2); "
        "cr.credibility(cr.Classifier(net), torch.randn(2, 3), gamma=1.0); "
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", f"import sys; {code}"], check=False)  # noqa: S603
    assert done.returncode == 0
