"""`credibly explore`: look through verdicts in a browser, or write a page of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from credibly.cli import options as o
from credibly.cli.console import print_text

if TYPE_CHECKING:
    from credibly.explore.server import Server


@o.spread
def explore(
    verdicts: Annotated[
        Path, typer.Argument(help="The Parquet file, or the folder, that `judge` wrote.")
    ],
    *,
    inputs: Annotated[
        Path | None,
        typer.Option(help="The inputs that were judged, to show them.", rich_help_panel="The data"),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="The model, to show what would change its mind; as for `judge`."),
    ] = None,
    judge: Annotated[Path | None, typer.Option(help="The folder that `fit` wrote.")] = None,
    words: Annotated[
        Path | None, typer.Option(help="Of texts: a file with the word of each token, by line.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write one page for up to 20,000 rows, and serve nothing.")
    ] = None,
    details: Annotated[
        int, typer.Option(min=0, help="With --html: inputs that the page shows in full.")
    ] = 100,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, open nothing.")
    ] = False,
    overwrite: o.Overwrite = False,
    of_model: o.ModelOptions,
    of_data: o.DataOptions,
) -> None:
    """Look through VERDICTS: counts, scores, thresholds, rows, and each input in detail."""
    from credibly.cli.exploring import Given, server_of, write_page

    with o.plain_warnings():
        given = Given.open(
            verdicts, inputs=inputs, model=model, judge=judge, words=words,
            of_model=of_model, of_data=of_data,
        )  # fmt: skip
        if html is not None:
            _check_free(html, (verdicts, inputs, judge, words), overwrite=overwrite)
            size = write_page(given, html, details)
            print_text(f"{html}: {given.rows} rows, {size / 1e6:.1f} MB; it needs no other file")
            return
        with server_of(given, port) as server:
            _serve(server, given.marks_note(), browser=not no_browser)


def _check_free(html: Path, read: Sequence[Path | None], *, overwrite: bool) -> None:
    from credibly.errors import OutputError

    for place in filter(None, read):
        if html.resolve() == place.resolve() or place.resolve() in html.resolve().parents:
            raise OutputError(f"{html} is, or lies in, what is read", remedy="Choose another name.")
    o.check_free(html, overwrite=overwrite)


def _serve(server: Server, note: str, *, browser: bool) -> None:
    import webbrowser

    print_text(f"{server.url}\n{note}Only this machine can reach it; stop it with Ctrl-C.")
    if browser:
        webbrowser.open(server.url)
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        print_text("\nstopped")
