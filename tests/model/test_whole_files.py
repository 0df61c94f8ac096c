"""Files that are written whole or not at all."""

import os
import threading

import pytest

from credibly.model.whole_files import whole_file


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
