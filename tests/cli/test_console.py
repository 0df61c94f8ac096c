"""Long commands report their progress, also without a terminal."""

import pytest

from credibly.cli.console import EVERY, Lines, duration, show_progress


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("credibly.cli.console.monotonic", clock)
    return clock


@pytest.fixture
def log(monkeypatch):
    lines = []
    monkeypatch.setattr("credibly.cli.console.print_line", lines.append)
    return Lines(20_000, "rows"), lines


def test_a_log_gets_a_line_every_half_minute_with_speed_and_time_left(clock, log):
    tick, lines = log
    tick(0.0)
    for done in range(100, 1001, 100):  # 100 rows in 10 s: 19,000 more at 10 a second
        clock.now += 10
        tick(done / 20_000)
    assert EVERY == 30.0
    assert lines == [
        "300 of 20000 rows, 10 per second, about 32.8 minutes left",
        "600 of 20000 rows, 10 per second, about 32.3 minutes left",
        "900 of 20000 rows, 10 per second, about 31.8 minutes left",
    ]


def test_rows_of_an_earlier_run_are_named_and_do_not_count_as_speed(clock, log):
    tick, lines = log
    tick(0.5)
    clock.now += 40
    tick(10_100 / 20_000)  # 100 in 40 s: 9,900 more in 3,960 s
    assert lines == [
        "continuing: 10000 of 20000 rows were finished before",
        "10100 of 20000 rows, 2.5 per second, about 66.0 minutes left",
    ]


def test_a_short_run_from_the_start_says_nothing(clock, log):
    tick, lines = log
    for share in (0.0, 0.5, 1.0):
        tick(share)
        clock.now += 10
    assert lines == []


def test_without_a_terminal_only_lines_are_written(capsys):
    with show_progress("solving", 10, "rows") as tick:
        tick(0.4)
        tick(1.0)
    assert capsys.readouterr().err == "continuing: 4 of 10 rows were finished before\n"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0123, "0.012 s"),
        (2.14, "2.1 s"),
        (99.7, "100 s"),
        (103.0, "100 s"),
        (118.0, "120 s"),
        (150.0, "2.5 minutes"),
        (9000.0, "2.5 hours"),
        (864000.0, "10.0 days"),
    ],
)
def test_a_duration_has_no_powers_of_ten(seconds, words):
    assert duration(seconds) == words
