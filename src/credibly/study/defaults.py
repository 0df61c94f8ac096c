"""The library's default scores, for rows that have their parts: sums of these, without a solve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch

from credibly.decide.learned import FAILURE_PARTS, TAMPER_PARTS, spread_of
from credibly.study.rows import Rows


def with_defaults(rows: Mapping[str, Rows], ordinary: Rows) -> dict[str, Rows]:
    """Every set with the defaults for failures and for tampering, as the ordinary one has them."""
    return _with_tamper_score(_with_failure_score(rows, ordinary), ordinary)


def _with_failure_score(rows: Mapping[str, Rows], ordinary: Rows) -> dict[str, Rows]:
    """Every set with the library's default for failures, balanced by the ordinary one.

    It is a sum of two scores that the rows have, so it needs no further solve.
    """
    if not _has(ordinary, FAILURE_PARTS):
        return dict(rows)
    spreads = {name: spread_of(ordinary.scores[name]) for name in FAILURE_PARTS}
    found = {}
    for key, part in rows.items():
        terms = [share / spreads[n] * part.scores[n] for n, share in FAILURE_PARTS.items()]
        scores = {**part.scores, "failure_score": torch.stack(terms).sum(0)}
        found[key] = replace(part, scores=scores)
    return found


def _with_tamper_score(rows: Mapping[str, Rows], ordinary: Rows) -> dict[str, Rows]:
    """Likewise with the default for tampering: distances from the medians of the ordinary set."""
    if not _has(ordinary, TAMPER_PARTS):
        return dict(rows)
    known = {name: ordinary.scores[name] for name in TAMPER_PARTS}
    found = {}
    for key, part in rows.items():
        terms = [
            (part.scores[name] - values.nanquantile(0.5)).abs() / spread_of(values)
            for name, values in known.items()
        ]
        scores = {**part.scores, "tamper_score": -torch.stack(terms).sum(0)}
        found[key] = replace(part, scores=scores)
    return found


def _has(rows: Rows, names: Iterable[str]) -> bool:
    """Whether all of these scores are there, with a number at least."""
    return all(n in rows.scores and not bool(rows.scores[n].isnan().all()) for n in names)
