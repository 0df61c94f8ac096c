"""`credibly drift`: is a stream of verdicts still like the ordinary ones?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from credibly.cli import options as o
from credibly.cli.console import print_text
from credibly.errors import FileFormatError, InvalidArgumentError

if TYPE_CHECKING:
    from credibly.decide.drift import DriftWatch

ENDINGS = (".json", ".png", ".svg", ".pdf")
ALARM = 1
"""Exit code where the alarm rose."""


def drift(
    verdicts: Annotated[
        Path, typer.Argument(help="File, or folder of files, that `judge` wrote, in stream order.")
    ],
    *,
    ordinary: Annotated[
        Path | None,
        typer.Option(help="Verdicts on ordinary inputs that the Judge was not fitted on."),
    ] = None,
    false_alarms: Annotated[
        float | None,
        typer.Option(help="Chance of ever raising a false alarm, at most.", show_default="0.01"),
    ] = None,
    by_class: Annotated[
        bool | None,
        typer.Option(
            "--by-class/--not-by-class",
            help="Spend half of it on changes within a predicted class.",
            show_default="by class",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Go on from this file if it is there, and write it at the end."),
    ] = None,
    out: Annotated[
        list[Path] | None,
        typer.Option(help="Write the result (.json) or a picture (.png, .svg, .pdf). Repeatable."),
    ] = None,
    overwrite: o.Overwrite = False,
) -> None:
    """Watch VERDICTS for drift; the exit code is 1 where the alarm rose."""
    from credibly.decide.drift_history import DriftHistory
    from credibly.decide.drift_verdicts import open_verdicts

    for place in out or []:
        _check_ending(place)
        o.check_free(place, overwrite=overwrite)
    with o.plain_warnings():
        stream = open_verdicts(verdicts)
        given = {"ordinary": ordinary, "false_alarms": false_alarms, "by_class": by_class}
        watch = _watch(verdicts, state, {k: v for k, v in given.items() if v is not None})
        history = DriftHistory(stream.rows, watch.seen)
        found = watch.update(verdicts, history=history)
        for place in out or []:
            _write(place, watch, history, stream.names)
        if state is not None:
            watch.save(state)
    print_text(found.summary(stream.names))
    raise typer.Exit(ALARM if found.alarm else 0)


def _watch(verdicts: Path, state: Path | None, given: dict[str, object]) -> DriftWatch:
    """Go on with the watch of the file, or begin one."""
    from credibly.decide.drift import DriftWatch

    if state is None or not state.exists():
        return DriftWatch.fit(verdicts, **given)  # type: ignore[arg-type]
    if given:
        name = next(iter(given)).replace("_", "-")
        raise InvalidArgumentError(
            "state",
            expected=f"no --{name} with a watch that has begun",
            got=f"{state}, which holds the settings that it was begun with",
            remedy=f"Leave out --{name}, or name a new file to begin anew.",
        )
    return DriftWatch.load(state, verdicts)


def _check_ending(place: Path) -> None:
    if place.suffix.lower() not in ENDINGS:
        raise FileFormatError(
            f"{place}: {place.suffix or 'no ending'!r} is not written. Name a file that ends in "
            f"{', '.join(ENDINGS)}."
        )


def _write(place: Path, watch: DriftWatch, history: object, names: object) -> None:
    from credibly._extras import require_report_extra
    from credibly.io.files import whole_file, write_json

    if place.suffix.lower() == ".json":
        write_json(place, watch.state.as_json(names))  # type: ignore[arg-type]
        return
    require_report_extra()
    from credibly.report.drift import draw_drift

    figure = draw_drift(history, watch.state, watch.settings, names)  # type: ignore[arg-type]
    with whole_file(place) as aside:
        figure.savefig(aside, format=place.suffix[1:].lower(), dpi=150)
