"""`credibly serve`: verdicts behind a request."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from credibly.cli import options as o
from credibly.cli.console import print_error, print_text
from credibly.errors import ModelError, OutputError

if TYPE_CHECKING:
    from credibly.serve.service import Service
    from credibly.serve.settings import Settings

SWITCH = 0.002
"""Seconds for which one thread may keep the others waiting; Python's own are 0.005."""

PACKAGES = ("fastapi", "uvicorn", "prometheus_client", "python_multipart", "PIL.Image")


def _limit(help: str, **more: Any) -> Any:  # noqa: A002  # typer's word
    return typer.Option(help=help, rich_help_panel="Limits", **more)


def _who(help: str, *names: str, **more: Any) -> Any:  # noqa: A002
    return typer.Option(*names, help=help, rich_help_panel="Who may ask", **more)


@o.spread
def serve(
    model: o.Model,
    *,
    judge: Annotated[Path, typer.Option(help="The folder that `fit` wrote.")],
    name: Annotated[str, typer.Option(help="Of the model, in addresses.")] = "judge",
    host: Annotated[str, _who("Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, _who("0 takes a free one.", min=0, max=65535)] = 8000,
    token_file: Annotated[
        Path | None, _who("File with the token that requests must send; or set CREDIBLY_TOKEN.")
    ] = None,
    without_token: Annotated[
        bool, _who("Let everybody ask who can reach the address.", "--without-token")
    ] = False,
    deadline: Annotated[float, _limit("Seconds in which requests should be answered.")] = 2.0,
    batch: Annotated[
        int | None,
        _limit("Rows solved at a time.", min=1, show_default="what a quarter of it allows"),
    ] = None,
    wait: Annotated[float, _limit("Seconds to wait for more rows, under load.", min=0)] = 0.005,
    rows: Annotated[int, _limit("Rows of one request.", min=1)] = 64,
    queue: Annotated[int, _limit("Rows that may wait.", min=1)] = 512,
    body: Annotated[
        int | None, _limit("Bytes of one request.", min=1, show_default="what the rows take")
    ] = None,
    bodies: Annotated[int, _limit("Bytes of all requests being read.", min=1)] = 64 << 20,
    connections: Annotated[int, _limit("Open connections.", min=1)] = 2048,
    pixels: Annotated[int, _limit("Pixels of all images of a request.", min=1)] = 16_000_000,
    drain: Annotated[float, _limit("Seconds to finish, once told to stop.")] = 30.0,
    threads: Annotated[
        int | None, _limit("Of the solver.", min=1, show_default="what is fastest")
    ] = None,
    scale: Annotated[float | None, typer.Option(help="Divide whole numbers by this.")] = None,
    bounds: o.BoundsPair = None,
    resize: Annotated[
        bool, typer.Option("--resize", help="Resize images to the size that was fitted on.")
    ] = False,
    watch: Annotated[
        Path | None, typer.Option(help="Watch the stream for drift; its state is kept here.")
    ] = None,
    ordinary: Annotated[
        Path | None, typer.Option(help="Verdicts on fresh ordinary inputs, for the watch.")
    ] = None,
    false_alarms: Annotated[
        float | None, typer.Option(help="Of the watch, ever, at most.", show_default="0.01")
    ] = None,
    of_model: o.ModelOptions,
) -> None:
    """Answer requests with verdicts: /v1/judge, and the Open Inference Protocol."""
    from credibly._extras import load_extra

    for package in PACKAGES:
        load_extra(package, extra="serve", purpose="`credibly serve`")
    from credibly.serve.server import check_who_may_ask, read_token
    from credibly.serve.settings import Settings

    token = read_token(token_file, os.environ.get("CREDIBLY_TOKEN"))
    check_who_may_ask(host, token, forced=without_token)
    _check_watched(watch, ordinary, false_alarms)
    settings = Settings(
        name=name, batch=batch, rows=rows, queue=max(queue, rows), wait=wait, deadline=deadline,
        body=body, bodies=bodies, connections=connections, pixels=pixels, drain=drain,
        threads=threads, scale=scale, bounds=bounds, resize=resize,
    )  # fmt: skip
    with o.plain_warnings():
        service = _service(model, judge, of_model, settings, (watch, ordinary, false_alarms))
    try:
        _run(service, host, port, token)
    except (ModelError, OutputError) as error:
        print_error(f"error: {error}", "red")
        raise typer.Exit(1) from error


def _service(
    model: str, judge: Path, of_model: o.ModelOptions, settings: Settings, watched: Any
) -> Service:
    from credibly.decide.judge import Judge
    from credibly.serve.service import Service
    from credibly.serve.watching import Watching

    loaded = of_model.load(model)
    fitted = Judge.load(judge, loaded)
    watch, ordinary, false_alarms = watched
    watching = None
    if watch is not None:
        watching = Watching.begin(fitted, watch, ordinary, false_alarms)
    print_text(fitted.summary())
    return Service(fitted, settings, watching)


def _check_watched(watch: Path | None, ordinary: Path | None, false_alarms: float | None) -> None:
    """Refuse settings of a watch that there is not."""
    from credibly._validation import require

    for name, value in (("ordinary", ordinary), ("false_alarms", false_alarms)):
        good = watch is not None or value is None
        remedy = "Pass --watch FILE to watch the stream, or leave it out."
        option = f"--{name.replace('_', '-')}"
        require(good, option, "--watch FILE beside it", f"{value} without it", remedy)


def _run(service: Service, host: str, port: int, token: str | None) -> None:
    from credibly.serve import logs
    from credibly.serve.app import create_app
    from credibly.serve.server import LOOPBACK, bound_socket, is_loopback
    from credibly.serve.server import serve as run

    listening = bound_socket(host, port)
    address = f"[{host}]" if ":" in host else host
    print_text(f"memory: {service.memory()}")
    print_text(f"http://{address}:{listening.getsockname()[1]}\nSIGTERM or Ctrl-C stops it.")
    logs.begin()
    hosts = LOOPBACK | {address} if is_loopback(host) else None
    # the solver gives up Python's lock thousands of times per second; it should get it back soon
    sys.setswitchinterval(SWITCH)
    run(create_app(service, token=token, hosts=hosts), service, listening)
    print_text("stopped")
