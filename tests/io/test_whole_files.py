"""Files that are written whole or not at all."""

import os
import threading
from pathlib import Path

import pytest

from credibly.io.whole_files import whole_file


def test_what_was_there_stays_until_all_is_written(tmp_path):
    path = tmp_path / "some.txt"
    path.write_text("old")
    with whole_file(path) as place:
        place.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path):
    def fail() -> None:
        with whole_file(tmp_path / "some.txt") as place:
            place.write_text("half")
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_threads_that_write_one_file_leave_one_of_their_texts(tmp_path):
    path, meeting = tmp_path / "some.txt", threading.Barrier(2, timeout=10)

    def write(text: str) -> None:
        with whole_file(path) as place:
            place.write_text(text)
            meeting.wait()  # both have written, none has finished

    threads = [threading.Thread(target=write, args=(text,)) for text in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert path.read_text() in ("one", "two")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are those of POSIX")
def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with whole_file(pipe) as place:
        place.write_text("through")
    reader.join(timeout=10)
    assert read == ["through"]
    assert pipe.is_fifo()


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="a folder that POSIX systems have")
def test_what_is_open_already_may_be_the_place():
    read, write = os.pipe()  # as '/dev/stdout' is, where another command reads it
    with whole_file(f"/dev/fd/{write}") as place:
        place.write_text("through")
    os.close(write)
    with os.fdopen(read) as file:
        assert file.read() == "through"


@pytest.mark.parametrize("closed", ["some.txt", "."])
def test_what_may_not_be_replaced_is_written_to_itself(tmp_path, monkeypatch, closed):
    path = tmp_path / "some.txt"
    path.write_text("old")
    protected = (tmp_path / closed).resolve()
    # asked of the system itself, the one who runs the tests may be allowed everything
    monkeypatch.setattr(os, "access", lambda place, _mode: place != protected)
    with whole_file(path) as place:
        assert place == path
