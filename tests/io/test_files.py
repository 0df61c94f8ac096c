"""Files are written completely or not at all, and a damaged file is named."""

import errno
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import credibly as cr
from credibly.errors import FileFormatError, OutputError
from credibly.io.files import (
    load_metadata,
    load_tensors,
    read_json,
    save_tensors,
    whole_file,
    write_json,
)
from credibly.study.rows import Rows, write_rows

posix = pytest.mark.skipif(os.name != "posix", reason="modes and pipes are those of POSIX")


def test_what_was_there_stays_until_all_is_written(tmp_path):
    path = tmp_path / "some.txt"
    path.write_text("old")
    with whole_file(path) as place:
        place.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("old", [None, "old"])
def test_a_full_disk_keeps_the_old_file_and_leaves_nothing(tmp_path, old):
    path = tmp_path / "some.txt"
    if old is not None:
        path.write_text(old)

    def fail() -> None:
        with whole_file(path) as place:
            place.write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OutputError, match=r"some\.txt cannot be written: the disk is full\. Make"):
        fail()
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == (
        [] if old is None else [("some.txt", "old")]
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_device_is_named():
    with pytest.raises(OutputError, match=r"/dev/full cannot be written: the disk is full"):
        write_json("/dev/full", {"a": 1})


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(OutputError, match=r"no/some\.json cannot be written: No such file"):
        write_json(tmp_path / "no" / "some.json", {})


def test_other_errors_pass_and_leave_nothing(tmp_path):
    def fail() -> None:
        with whole_file(tmp_path / "some.txt") as place:
            place.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_the_first_one_wins_if_nothing_is_to_be_replaced(tmp_path):
    path = tmp_path / "some.json"
    for text in ("first", "second"):
        write_json(path, {"format": "k", "format_version": 1, "a": text}, replace=False)
    assert read_json(path, "k", 1)["a"] == "first"
    assert list(tmp_path.iterdir()) == [path]


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


@posix
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


@pytest.fixture(params=[0o022, 0o027, 0o077])
def mask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


@posix
def test_profiles_and_parts_of_studies_follow_the_umask(tmp_path, mask):
    clf = cr.Classifier(torch.nn.Linear(2, 2).double().eval())
    cr.credibility(clf, np.eye(2), gamma=1.0).save(tmp_path / "p.safetensors")
    none = torch.zeros(2, dtype=torch.int64)
    rows = Rows("ordinary", none, none, none, {}, {})
    write_rows(tmp_path / "ordinary.safetensors", rows, {"kind": "ordinary"})
    for path in tmp_path.iterdir():
        assert mode(path) == 0o666 & ~mask, path.name
    assert len(list(tmp_path.iterdir())) == 2


@posix
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    path = tmp_path / "a.safetensors"
    path.touch()
    path.chmod(0o640)
    save_tensors({"a": torch.ones(2)}, path, metadata={"b": "c"})
    assert mode(path) == 0o640
    tensors, metadata = load_tensors(path)
    assert tensors["a"].tolist() == [1.0, 1.0]
    assert metadata == load_metadata(path) == {"b": "c"}


def test_tensors_that_cannot_be_written_leave_nothing_behind(tmp_path):
    both = torch.ones(4)
    with pytest.raises(RuntimeError, match="share memory"):
        save_tensors({"a": both, "b": both}, tmp_path / "a.safetensors", metadata={})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [None, b"", b"nonsense", b"\xff" * 90])
@pytest.mark.parametrize(
    "read", [load_tensors, load_metadata, lambda path: read_json(path, "k", 1)]
)
def test_unreadable_files_are_named(tmp_path, content, read):
    path = tmp_path / "some.file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"some\.file: "):
        read(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "not a 'k' file"),
        ("{}", "not a 'k' file; its format is None"),
        ('{"format": "other"}', "its format is 'other'"),
        ('{"format": "k", "format_version": 2}', "format version 2; this credibly reads 1"),
        ("[" * 100_000, "not a JSON file"),
    ],
)
def test_other_formats_are_refused(tmp_path, text, words):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(FileFormatError, match=words):
        read_json(tmp_path / "a.json", "k", 1)


def test_tensors_stay_when_their_file_is_cut(tmp_path):
    """Of a mapped file, the next look at the tensors would end the process."""
    path = tmp_path / "x.safetensors"
    save_tensors({"x": torch.arange(4096.0)}, path, metadata={"a": "b"})
    tensors, metadata = load_tensors(path)
    os.truncate(path, 0)
    assert tensors["x"].sum() == 4095 * 2048
    assert metadata == {"a": "b"}


def test_tensors_come_in_the_order_of_their_names(tmp_path):
    names = [f"{k:02d}" for k in range(40)]
    save_tensors({name: torch.ones(1) for name in names}, tmp_path / "x", metadata={})
    assert list(load_tensors(tmp_path / "x")[0]) == names


@pytest.mark.parametrize("size", [0, 5, 40, 9000])
@pytest.mark.parametrize("load", [load_tensors, load_metadata])
def test_a_file_that_shrinks_after_it_was_opened_is_named(tmp_path, monkeypatch, *, size, load):
    path = tmp_path / "x.safetensors"
    save_tensors({"x": torch.arange(4096.0)}, path, metadata={"a": "b" * 100})
    opened = Path.open

    def shrink(self, *given, **how):
        file = opened(self, *given, **how)
        os.truncate(path, size)
        return file

    monkeypatch.setattr(Path, "open", shrink)
    if load is load_metadata and size == 9000:  # its header is whole
        assert load(path) == {"a": "b" * 100}
        return
    with pytest.raises(FileFormatError, match=r"x\.safetensors: not a readable safetensors file"):
        load(path)


@pytest.mark.parametrize("header", [b"[1]", b"{", b'{"__metadata__": 3}', b"\xff\xff", b"[" * 9999])
@pytest.mark.parametrize("load", [load_tensors, load_metadata])
def test_headers_that_are_none_are_named(tmp_path, header, load):
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(FileFormatError, match=r"x\.safetensors: not a readable safetensors file"):
        load(path)
