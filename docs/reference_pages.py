"""The pages of the reference that are written from the code: the API and the commands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from credibly.cli.app import app

PACKAGE = Path(__file__).parents[1] / "src" / "credibly"
FIRST = (
    "Judge", "Judgement", "Verdict", "judge_file", "Classifier", "load_classifier", "credibility",
    "Profile", "Status", "auto_gamma", "SelectiveClassifier", "Decision", "OutlierFlag",
    "ConformalSets", "compare", "plot_profile", "open_source", "score",
)  # fmt: skip
"""The order in which a newcomer meets the names; the others follow by name."""


OPTIONS = {
    "Judge": "\n    options: {show_bases: false, merge_init_into_class: false, "
    "inherited_members: false}"
}
"""A class that only its own `fit` and `load` make is shown without the parts that it is made of."""


def reference_pages() -> dict[str, str]:
    """Text by name of page, below docs/reference/."""
    top, spaces = public_names(PACKAGE / "__init__.pyi")
    pages = {"api/credibly.md": _api_page("credibly", _in_order(top))}
    for space in spaces:
        module = PACKAGE / f"{space}.py"
        names, _ = public_names(module if module.is_file() else PACKAGE / space / "__init__.pyi")
        pages[f"api/{space}.md"] = _api_page(f"credibly.{space}", sorted(names))
    return pages | {"commands.md": commands_page()}


def public_names(path: Path) -> tuple[list[str], list[str]]:
    """The names that a file makes public, and the namespaces among them."""
    tree = ast.parse(path.read_text("utf-8"))
    names: list[str] = []
    spaces: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            found = [alias.asname for alias in node.names if alias.asname == alias.name]
            whole = node.level == 1 and node.module is None
            (spaces if whole else names).extend(name for name in found if name)
        elif isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            names.append(node.name)
    return [name for name in names if not name.startswith("__")], spaces


def _in_order(names: list[str]) -> list[str]:
    return [n for n in FIRST if n in names] + sorted(n for n in names if n not in FIRST)


def _api_page(module: str, names: list[str]) -> str:
    lead = (
        f"After this page you can use every public name of `{module}`: arguments, answers, errors."
    )
    entries = [f"::: {module}.{name}{OPTIONS.get(name, '')}" for name in names]
    return f"# {module}\n\n{lead}\n\n" + "\n\n".join(entries)


def commands_page() -> str:
    """Every command with its arguments and options, as its help says them."""
    lead = (
        "After this page you can use every command and option of `credibly`. It is written from "
        "their help; [the command line](command-line.md) shows them at work."
    )
    group: Any = typer.main.get_command(app)
    return "\n\n".join(["# Commands", lead, *_commands("credibly", group)]) + "\n"


def _commands(prefix: str, group: Any) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        whole = f"{prefix} {name}"
        yield _command(whole, command)
        if hasattr(command, "commands"):
            yield from _commands(whole, command)


def _command(name: str, command: Any) -> str:
    context = typer.Context(command, info_name=name)
    usage = _plain(command.get_usage(context).removeprefix("Usage: "))
    records = [parameter.get_help_record(context) for parameter in command.params]
    rows = [f"| `{_plain(shown)}` | {_cell(text)} |" for shown, text in filter(None, records)]
    table = "\n".join(["| argument or option | what it says |", "|---|---|", *rows]) if rows else ""
    said = (command.help or "").partition("\f")[0].strip()
    return "\n\n".join([f"## {name}", said, f"```text\n{usage}\n```", table]).strip()


def _plain(usage: str) -> str:
    """Arguments as the help shows them: DATA and not {data}."""
    return re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), usage)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")
