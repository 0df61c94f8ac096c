"""Long commands say how far they are, also where nobody sees a bar."""

import pytest

from credibly.cli.progress import EVERY, Lines, showing


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(clock):
    lines = []
    ticks = Lines(20_000, "rows", clock=clock, write=lines.append)
    return ticks, lines


def test_a_log_gets_a_line_every_half_minute_with_speed_and_time_left(clock, log):
    tick, lines = log
    tick(0.0)
    for done in range(100, 1001, 100):  # 100 rows in 10 s: 19,000 more at 10 a second
        clock.now += 10
        tick(done / 20_000)
    assert EVERY == 30.0
    assert lines == [
        "300 of 20000 rows, 10 a second, about 33 min left",
        "600 of 20000 rows, 10 a second, about 32 min left",
        "900 of 20000 rows, 10 a second, about 32 min left",
    ]


def test_rows_of_an_earlier_run_are_named_and_do_not_count_as_speed(clock, log):
    tick, lines = log
    tick(0.5)
    clock.now += 40
    tick(10_100 / 20_000)  # 100 in 40 s: 9,900 more in 3,960 s
    assert lines == [
        "going on: 10000 of 20000 rows were finished before",
        "10100 of 20000 rows, 2.5 a second, about 66 min left",
    ]


def test_a_short_run_from_the_start_says_nothing(clock, log):
    tick, lines = log
    for share in (0.0, 0.5, 1.0):
        tick(share)
        clock.now += 10
    assert lines == []


def test_without_a_terminal_nothing_but_lines_comes(capsys):
    with showing(10, "rows", ()) as tick:
        tick(0.4)
        tick(1.0)
    assert capsys.readouterr().err == "going on: 4 of 10 rows were finished before\n"
