"""A few seconds of `make fuzz` with a fixed seed: nothing may be found."""

import time

import pytest

from fuzz.__main__ import look
from fuzz.server import Forks
from fuzz.tally import PARTS, Case, Plan, Tally

SECONDS = {"samples": 3.0, "files": 1.0, "kills": 1.5, "threads": 0.5, "disks": 1.5}


@pytest.fixture(scope="module")
def forks():
    with Forks(quick=True) as found:
        yield found


@pytest.mark.parametrize("part", PARTS)
def test_nothing_is_found(part, forks):
    tally = look(part, Plan(seconds=SECONDS[part], quick=True), forks)
    assert sum(tally.counts.values()) > 0
    assert tally.finds == {}, "\n".join(tally.lines())


def test_a_case_is_the_same_whenever_it_is_drawn():
    case = Case.named("files:3:17")
    assert str(case) == "files:3:17"
    assert case.random().integers(2**40) == case.random().integers(2**40)
    assert case.random().integers(2**40) != Case("kills", 3, 17).random().integers(2**40)
    assert [c.number for c in Plan(only=5).cases("kills")] == [5]
    started = time.monotonic()
    assert len(list(Plan(seconds=0.05).cases("kills"))) > 1
    assert time.monotonic() - started < 5


def test_finds_of_a_kind_are_listed_together():
    tally = Tally("files")
    for number in range(6):
        tally.find(Case("files", 0, number), f"ValueError: row {number + 10}", "csv")
    assert tally.found == 6
    assert len(tally.finds) == 1
    assert "files:0:3 csv" in "\n".join(tally.lines())
    assert "and 2 more" in tally.lines()[-1]


def test_what_breaks_is_noticed(forks):
    """The harness itself: a kill, a hang, a full disk and a flood of memory are told as such."""
    ended = [
        list(forks.call(f"fuzz.server:{name}", None, silence=2.0))[-1]["ended"]
        for name in ("die", "sleep", "flood")
    ]
    assert ended == [9, "hang", 1]
