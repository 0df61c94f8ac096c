"""Damage is noticed: in finished parts, in the input during a run, and in the last clean-up."""

import json
import os
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

import credibly as cr
from credibly.batch import run
from credibly.batch import score as module
from credibly.batch.shards import Shards
from credibly.io.images import ImageFolder
from credibly.io.run_folder import RunFolder
from credibly.io.source import Source
from tests.batch.settings import ROWS, SMALL


class Killed(BaseException):
    """Stands for whatever ends a process."""


@pytest.fixture
def whole(clf, data, tmp_path):
    """The bytes that every run must end with."""
    cr.score(clf, data, tmp_path / "whole.parquet", **SMALL)
    return (tmp_path / "whole.parquet").read_bytes()


def stop_before_the_end(clf, data, out, monkeypatch, **change):
    """Let a run die when all its parts are finished, and nothing is joined."""

    def dies(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Shards, "merge", dies)
        with pytest.raises(Killed):
            cr.score(clf, data, out, **{**SMALL, **change})
    return [Shards(out).part(f"part-00000{k}.parquet") for k in range(3)]


def swap(left, right):
    left_bytes, right_bytes = left.read_bytes(), right.read_bytes()
    left.write_bytes(right_bytes)
    right.write_bytes(left_bytes)


@pytest.mark.parametrize("place", [0.02, 0.2, 0.4, 0.6, 0.8, 0.99])
def test_one_flipped_bit_in_a_part_costs_only_this_part(
    clf, data, out, monkeypatch, *, whole, place
):
    part = stop_before_the_end(clf, data, out, monkeypatch)[1]
    content = bytearray(part.read_bytes())
    content[int(place * len(content))] ^= 4
    part.write_bytes(content)
    assert cr.score(clf, data, out, **SMALL).resumed == ROWS - 8
    assert out.read_bytes() == whole


@pytest.mark.parametrize("records", [False, True])
def test_parts_in_each_other_s_place_are_solved_again(
    clf, data, out, monkeypatch, *, whole, records
):
    parts = stop_before_the_end(clf, data, out, monkeypatch)
    swap(*parts[:2])
    if records:
        swap(*(part.with_suffix(".json") for part in parts[:2]))
    assert cr.score(clf, data, out, **SMALL).resumed == ROWS - 16
    assert out.read_bytes() == whole


def test_parts_of_another_run_are_solved_again(clf, data, out, monkeypatch, *, whole, tmp_path):
    part = stop_before_the_end(clf, data, out, monkeypatch)[0]
    other = tmp_path / "other.parquet"
    foreign = stop_before_the_end(clf, data, other, monkeypatch, gamma=9.0)[0]
    for suffix in (".parquet", ".json"):
        shutil.copy(foreign.with_suffix(suffix), part.with_suffix(suffix))
    assert cr.score(clf, data, out, **SMALL).resumed == ROWS - 8
    assert out.read_bytes() == whole


@pytest.mark.parametrize("record", ["there", "gone", "{", '{"sha256": 1}'])
def test_parts_of_another_schema_are_solved_again(clf, data, out, monkeypatch, *, whole, record):
    part = stop_before_the_end(clf, data, out, monkeypatch)[0]
    if record == "there":
        pq.write_table(pa.table({"a": range(8)}), part)
    elif record == "gone":
        part.with_suffix(".json").unlink()
    else:
        part.with_suffix(".json").write_text(record)
    assert cr.score(clf, data, out, **SMALL).resumed == ROWS - 8
    assert out.read_bytes() == whole


def damage_before_joining(monkeypatch, times):
    compare, left = run._compare_or_remove, [times]

    def damaging(watch, shards):
        compare(watch, shards)
        if left[0]:
            left[0] -= 1
            shards.part("part-000002.parquet").write_bytes(b"PAR1 nonsense")

    monkeypatch.setattr(run, "_compare_or_remove", damaging)


def test_what_is_damaged_before_it_is_joined_is_solved_again(clf, data, out, monkeypatch, *, whole):
    damage_before_joining(monkeypatch, 1)
    assert cr.score(clf, data, out, **SMALL).resumed == 0
    assert out.read_bytes() == whole


def test_a_disk_that_damages_every_part_is_named(clf, data, out, monkeypatch):
    damage_before_joining(monkeypatch, 99)
    with pytest.raises(cr.errors.OutputError, match="does not give back what was written"):
        cr.score(clf, data, out, **SMALL)
    assert not out.exists()


def test_a_manifest_with_other_weights_than_the_run_had_starts_anew(
    clf, data, out, monkeypatch, *, whole
):
    stop_before_the_end(clf, data, out, monkeypatch)
    manifest = Shards(out).manifest
    content = json.loads(manifest.read_text())
    content["resolved"]["weights"][0] = 3.0
    manifest.write_text(json.dumps(content))
    assert cr.score(clf, data, out, **SMALL).resumed == 0
    assert out.read_bytes() == whole


def write_inputs(path, seed):
    x = np.random.default_rng(seed).normal(size=(ROWS, 4))
    frame = pd.DataFrame(x.round(3), columns=list("abcd"))
    if path.suffix == ".npy":
        np.save(path, x)
    elif path.suffix == ".npz":
        np.savez(path, x=x)
    elif path.suffix == ".safetensors":
        save_file({"x": torch.from_numpy(x)}, path)
    elif path.suffix == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path)
    return path


def once_half_is_done(change):
    done = []

    def tick(share):
        if share > 0.5 and not done:
            done.append(share)
            change()

    return tick


FORMATS = ["npy", "npz", "safetensors", "csv", "parquet"]


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("same_times", [True, False])
def test_an_input_that_is_overwritten_during_the_run_is_refused(
    clf, tmp_path, out, *, ending, same_times
):
    path = write_inputs(tmp_path / f"x.{ending}", 0)
    before = path.stat()

    def change():
        write_inputs(path, 1)
        if same_times:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(cr.errors.FileFormatError, match=rf"x\.{ending}.*(changed|not a readable)"):
        cr.score(clf, path, out, **SMALL, progress=once_half_is_done(change))
    assert not out.exists()


def test_a_change_that_no_time_tells_is_found_in_the_end(clf, data, out, monkeypatch):
    monkeypatch.setattr(Source, "stamp", lambda *_: (1,))
    change = once_half_is_done(lambda: np.save(data, np.zeros((ROWS, 4))))
    with pytest.raises(
        cr.errors.FileFormatError, match=r"x\.npy: changed while it was read, so there is no"
    ):
        cr.score(clf, data, out, **SMALL, progress=change)
    assert not out.exists()
    assert not Shards(out).path.exists()  # nobody knows which of the parts are right


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for k in range(9):
        (folder / f"{k}.pgm").write_bytes(b"P5 2 2 255\n" + bytes([k] * 4))
    return folder


@pytest.fixture
def flat():
    return cr.Classifier(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3)).eval())


@pytest.mark.parametrize("number", [0, 8])
def test_an_image_that_is_replaced_during_the_run_is_found_in_the_end(images, flat, out, number):
    new = b"P5 2 2 255\n" + bytes([99] * 4)
    change = once_half_is_done(lambda: (images / f"{number}.pgm").write_bytes(new))
    with pytest.raises(cr.errors.FileFormatError, match="changed while it was read"):
        cr.score(flat, images, out, **SMALL, progress=change)
    assert not out.exists()


@pytest.mark.parametrize("change", ["replaced", "removed"])
def test_an_image_that_changed_is_found_with_its_chunk(images, flat, out, change):
    shares, next_chunk = [], images / "3.pgm"

    def tick(share):
        shares.append(share)
        if share == 0:
            next_chunk.unlink()
            if change == "replaced":
                next_chunk.write_bytes(b"P5 2 2 255\n" + bytes([99] * 4))

    with pytest.raises(cr.errors.FileFormatError, match="changed while it was read"):
        cr.score(flat, images, out, gamma=2.0, chunk_size=2, shard_size=2, progress=tick)
    assert shares == pytest.approx([0, 2 / 9])


def test_images_that_are_only_touched_are_looked_at_once(images, flat, out, monkeypatch):
    looks, fingerprint = [], ImageFolder.fingerprint

    def counting(self):
        looks.append(1)
        return fingerprint(self)

    def touch_all():
        for path in images.iterdir():
            path.touch()

    monkeypatch.setattr(ImageFolder, "fingerprint", counting)
    change = once_half_is_done(touch_all)
    report = cr.score(flat, images, out, gamma=2.0, chunk_size=1, shard_size=3, progress=change)
    assert report.rows == 9
    assert len(looks) == 3  # at the start, after the touch, and at the end


def test_an_input_that_is_only_touched_is_no_reason_to_stop(clf, data, out, *, whole):
    cr.score(clf, data, out, **SMALL, progress=once_half_is_done(data.touch))
    assert out.read_bytes() == whole


@pytest.mark.parametrize("ending", FORMATS)
def test_an_input_that_is_cut_short_during_the_run_is_an_error_and_not_the_end(
    clf, tmp_path, out, ending
):
    path = write_inputs(tmp_path / f"x.{ending}", 0)
    change = once_half_is_done(lambda: os.truncate(path, 200))
    with pytest.raises(cr.errors.FileFormatError, match=rf"x\.{ending}"):
        cr.score(clf, path, out, **SMALL, progress=change)
    assert not out.exists()


def test_an_input_that_changed_after_it_was_opened_is_refused(clf, data, out):
    source = cr.open_source(data)
    np.save(data, np.zeros((ROWS + 5, 4)))
    with pytest.raises(cr.errors.FileFormatError, match="changed after it was opened"):
        cr.score(clf, source, out, **SMALL)


def killed_in_the_clean_up(clf, data, out, monkeypatch, left):
    """Let a run die in its last clean-up, with some files of its folder left."""
    clear = RunFolder.clear

    def dies(self):
        if self.out.exists():
            if left != "everything":
                clear(self)
            if left == "nothing":
                (self.path / "lock").unlink()
            raise Killed
        clear(self)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "clear", dies)
        with pytest.raises(Killed):
            cr.score(clf, data, out, **SMALL)
    if left == "lock":  # which a process that ends in an orderly way removes
        (Shards(out).path / "lock").touch()
    assert Shards(out).path.is_dir()


@pytest.mark.parametrize("left", ["everything", "lock", "nothing"])
def test_a_run_killed_in_its_clean_up_is_finished_by_the_next(
    clf, data, out, monkeypatch, *, whole, left
):
    killed_in_the_clean_up(clf, data, out, monkeypatch, left)
    assert out.read_bytes() == whole
    monkeypatch.setattr(module, "solve_chunk", None)  # nothing is solved again
    report = cr.score(clf, data, out, **SMALL)
    assert report.resumed == report.rows == ROWS
    assert report.statuses["non finite input"] == 3
    assert report.gamma == 2.0
    assert out.read_bytes() == whole
    assert not Shards(out).path.exists()
    with pytest.raises(cr.errors.OutputError, match="exists already"):
        cr.score(clf, data, out, **SMALL)


@pytest.mark.parametrize("left", ["everything", "lock"])
def test_other_settings_do_not_take_such_a_file_for_their_own(
    clf, data, out, monkeypatch, *, whole, left
):
    killed_in_the_clean_up(clf, data, out, monkeypatch, left)
    with pytest.raises(cr.errors.OutputError, match="exists already"):
        cr.score(clf, data, out, **{**SMALL, "gamma": 3.0})
    assert out.read_bytes() == whole


def test_parts_of_a_run_that_was_to_replace_the_file_are_kept(
    clf, data, out, monkeypatch, *, whole
):
    cr.score(clf, data, out, **SMALL)
    stop_before_the_end(clf, data, out, monkeypatch, gamma=9.0, overwrite=True)
    with pytest.raises(cr.errors.OutputError, match="exists already"):
        cr.score(clf, data, out, **SMALL)
    assert out.read_bytes() == whole
    assert cr.score(clf, data, out, **{**SMALL, "gamma": 9.0}, overwrite=True).resumed == ROWS
