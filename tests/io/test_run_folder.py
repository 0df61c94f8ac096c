"""Folders of long runs: settings, parts and locks."""

import subprocess
import sys

import pytest

from credibly.errors import FileFormatError, OutputError
from credibly.io.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path / "run")


def test_what_was_resolved_first_is_returned_ever_after(folder):
    assert folder.begin({"a": (1, 2)}, lambda: {"gamma": 0.3}) == {"gamma": 0.3}
    assert folder.begin({"a": [1, 2]}, lambda: {"gamma": 0.4}) == {"gamma": 0.3}
    folder.check({"a": [1, 2]})


def test_every_difference_is_named(folder):
    folder.begin({"a": 1, "b": "x" * 90, "c": 3, "digest": "ab" * 32})
    new = {"a": 2, "b": "y", "d": None, "digest": "cd" * 32}
    for refuse in (folder.begin, folder.check):
        with pytest.raises(OutputError) as caught:
            refuse(new)
        for words in (
            "a was 1 and is now 2",
            "b was xxx",
            "c was 3 and is now not set",
            "digest was abababababab and is now cdcdcdcdcdcd.",
        ):
            assert words in str(caught.value)


def test_settings_may_be_compared_in_another_way(folder):
    folder.begin({"a": 1.0, "b": 2})
    close = lambda name, old, new: name == "a" or old == new  # noqa: E731
    folder.begin({"a": 1.1, "b": 2}, same=close)
    with pytest.raises(OutputError, match=r"settings: b was 2 and is now 3\. Use"):
        folder.begin({"a": 1.1, "b": 3}, same=close)


def test_a_check_writes_nothing(folder):
    folder.check({"a": 1})
    assert not folder.path.exists()


@pytest.mark.parametrize("text", ["{", "{}", '{"format": "credibly.run", "format_version": 1}'])
def test_a_damaged_manifest_is_named(folder, text):
    folder.create()
    folder.manifest.write_text(text)
    with pytest.raises(FileFormatError, match=r"manifest\.json"):
        folder.begin({})


def test_parts_appear_complete_and_only_they_are_removed(folder):
    folder.begin({})
    with folder.write("a.safetensors") as place:
        place.write_text("a")
        assert not folder.has("a.safetensors")
    assert folder.has("a.safetensors")
    (folder.path / "mine.txt").touch()
    folder.remove()
    assert [path.name for path in folder.path.iterdir()] == ["mine.txt"]
    (folder.path / "mine.txt").unlink()
    folder.remove()
    assert not folder.path.exists()
    folder.remove()  # nothing to do


class Killed(BaseException):
    """Stands for whatever ends a process."""


def test_a_lock_ends_with_the_run_and_a_stale_one_does_not_matter(folder):
    lock = folder.path / "lock"
    folder.create()
    lock.touch()  # of a run that was killed
    (folder.path / "a.1-2.tmp").touch()
    with folder.lock():
        assert lock.exists()
        assert not list(folder.path.glob("*.tmp"))
        with pytest.raises(OutputError, match=r"another run is working on out\.x"):  # noqa: SIM117
            with RunFolder(folder.path).lock("out.x"):
                pass
        assert lock.exists()  # a run that is refused takes nothing away
    assert not lock.exists()
    with pytest.raises(Killed), folder.lock():
        raise Killed
    assert not lock.exists()
    with folder.lock():
        lock.unlink()  # by a run that cleans up, and another one begins
        lock.write_text("the next")
    assert lock.read_text() == "the next"


def test_one_process_has_a_piece_of_work(folder):
    with folder.claim("a") as first, folder.claim("a") as second, folder.claim("b") as other:
        assert (first, second, other) == (True, False, True)
    assert list(folder.path.iterdir()) == []


COUNT_ALONE = """
import sys, time
from pathlib import Path
from credibly.io.run_folder import RunFolder
path = Path(sys.argv[1])
for _ in range(15):
    with RunFolder(path).claim("count", wait=True) as held:
        assert held
        before = int((path / "count").read_text())
        time.sleep(0.001)
        (path / "count").write_text(str(before + 1))
"""  # counts in a file that nobody else may touch meanwhile


def test_processes_wait_for_each_other_although_the_lock_is_removed(folder):
    folder.create()
    (folder.path / "count").write_text("0")
    command = [sys.executable, "-c", COUNT_ALONE, str(folder.path)]
    workers = [subprocess.Popen(command) for _ in range(3)]  # noqa: S603
    assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    assert (folder.path / "count").read_text() == "45"
    assert [path.name for path in folder.path.iterdir()] == ["count"]
