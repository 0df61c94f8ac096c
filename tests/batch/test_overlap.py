"""Reading ahead and writing behind give what a plain loop gives, and stop cleanly."""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from credibly.batch.overlap import WriteBehind, onto, read_ahead, staged


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(), max_size=12), st.integers(0, 4))
def test_the_order_is_that_of_a_loop(items, ahead):
    assert list(read_ahead(iter(items), lambda n: 2 * n, ahead=ahead)) == [2 * n for n in items]


def test_no_more_is_read_ahead_than_asked_for():
    started = []
    found = read_ahead(range(100), lambda n: started.append(n) or n, ahead=2)
    assert next(found) == 0
    found.close()
    assert started in ([0], [0, 1], [0, 1, 2])


def test_an_error_is_raised_at_its_item_and_not_before():
    def read(n):
        if n == 2:
            raise OSError("damaged")
        return n

    found = read_ahead(range(5), read)
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(OSError, match="damaged"):
        next(found)


def test_reading_happens_in_another_thread_while_the_caller_works():
    started, readers = [threading.Event() for _ in range(5)], set()

    def read(n):
        readers.add(threading.get_ident())
        started[n].set()
        return n

    for n in read_ahead(range(5), read, ahead=1):
        assert all(one.wait(10) for one in started[: n + 2])  # the next one, too
    assert len(readers) == 1
    assert threading.get_ident() not in readers


def test_no_thread_is_left_behind():
    before = threading.active_count()
    found = read_ahead(range(100), lambda n: n)
    next(found)
    found.close()
    with WriteBehind(lambda _: None) as write:
        write(1)
    assert threading.active_count() == before


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(), max_size=12))
def test_everything_is_written_in_order(items):
    done = []
    with WriteBehind(done.append) as write:
        for item in items:
            write(item)
    assert done == items


def test_writing_happens_while_the_caller_works():
    goes_on, waited = threading.Event(), []
    with WriteBehind(lambda _: waited.append(goes_on.wait(10))) as write:
        write(1)
        goes_on.set()  # were the caller not back yet, the writer would wait in vain
    assert waited == [True]


def test_an_error_of_writing_is_raised_by_the_next_call_or_at_the_end():
    done = []

    def put(n):
        if n == 1:
            raise OSError("disk is full")
        done.append(n)

    def put_all():
        with WriteBehind(put) as write:
            for n in range(5):
                write(n)

    with pytest.raises(OSError, match="disk is full"):
        put_all()
    assert done == [0]
    with pytest.raises(OSError, match="disk is full"), WriteBehind(put) as write:
        write(1)


def test_what_was_passed_before_the_caller_failed_is_written():
    done = []

    def fail():
        with WriteBehind(done.append) as write:
            write(1)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fail()
    assert done == [1]


def test_on_a_cpu_nothing_is_staged_and_the_precision_is_that_asked_for():
    x = torch.arange(3)
    assert staged(x, None) is x
    assert staged(x, torch.device("cpu")) is x
    assert onto(x, torch.device("cpu"), torch.float32).dtype == torch.float32
    assert onto(x, None) is x
