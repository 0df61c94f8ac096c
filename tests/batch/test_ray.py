"""Ray's workers write what one process writes, whatever is lost meanwhile; errors say what to do.

All tests share one Ray; every run starts workers of its own.
"""

import json
import sys

import numpy as np
import pandas as pd
import pytest
from torch import nn

import credibly as cr
from credibly.batch import ray_connection, ray_crew
from credibly.batch.shards import Shards
from tests.batch.elsewhere import MODEL, Stop, local
from tests.batch.settings import ROWS, SMALL
from tests.object_store import s3_server

pytestmark = pytest.mark.xdist_group("ray")  # with --dist loadgroup: one Ray for all

ONE = cr.ray.Ray(workers=1)
TWO = cr.ray.Ray(workers=2)


@pytest.mark.usefixtures("ray_here")
def test_verdicts_in_a_folder_are_those_of_one_process(loaded, data, tmp_path):
    clf = loaded()
    judge = cr.Judge.fit(clf, np.random.default_rng(1).normal(size=(200, 4)))
    small = {"chunk_size": 4, "shard_size": 8, "folder": True, "fingerprint": clf}
    cr.judge_file(judge, data, tmp_path / "there", **small, engine=TWO)
    cr.judge_file(judge, data, tmp_path / "here", **small)
    here, there = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()}
                   for name in ("here", "there"))  # fmt: skip
    assert here == there
    assert cr.verify_output(tmp_path / "there").is_whole


@pytest.mark.usefixtures("ray_here")
def test_what_two_workers_began_one_process_finishes(loaded, data, tmp_path, out):
    clf = loaded()
    with pytest.raises(KeyboardInterrupt):
        cr.score(clf, data, out, **SMALL, engine=TWO, progress=Stop(0.5))
    assert cr.score(clf, data, out, **SMALL).resumed >= 8
    assert out.read_bytes() == local(clf, data, tmp_path)


@pytest.mark.usefixtures("ray_here")
def test_what_one_process_began_a_worker_finishes_although_a_shard_is_damaged(
    loaded, data, tmp_path, out
):
    clf, status, seen = loaded(), tmp_path / "status.json", []
    with pytest.raises(KeyboardInterrupt):
        cr.score(clf, data, out, **SMALL, progress=Stop(0.9))
    part = min(Shards(out).path.glob("part-*.parquet"))
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    report = cr.score(clf, data, out, **SMALL, engine=ONE, progress=seen.append, status=status)
    assert report.resumed == 15
    assert seen[-1] == 1.0
    assert out.read_bytes() == local(clf, data, tmp_path)
    assert not Shards(out).path.exists()
    said = json.loads(status.read_text())
    assert (said["state"], said["engine"], said["rows_done"]) == ("finished", "ray", ROWS)
    assert (said["rows_resumed"], said["retries"]) == (15, 0)
    assert said["seconds_solving"] > 0


@pytest.mark.usefixtures("ray_here")
def test_a_killed_worker_is_replaced_and_its_shards_are_made_again(loaded, data, tmp_path, out):
    x = np.load(data)
    x[10, 0] = 60.0  # here it dies
    np.save(data, x)
    clf = loaded("Dying")
    report = cr.score(clf, data, out, **SMALL, engine=ONE, status=tmp_path / "status.json")
    assert (tmp_path / "mark").exists()
    assert json.loads((tmp_path / "status.json").read_text())["retries"] >= 1
    assert report.rows == ROWS
    expected = local(clf, data, tmp_path)
    assert out.read_bytes() == expected


@pytest.mark.usefixtures("ray_here")
def test_a_row_that_kills_every_worker_ends_the_run_and_keeps_the_rest(
    loaded, data, out, monkeypatch
):
    monkeypatch.setattr(ray_crew, "TRIES", 2)
    x = np.load(data)
    x[20, 0] = 60.0
    np.save(data, x)
    with pytest.raises(cr.errors.WorkerError, match=r"shard 2 was lost with 2 workers.*chunk-size"):
        cr.score(loaded("Dying", ONCE=False), data, out, **SMALL, engine=ONE)
    assert cr.verify_output(out).rows == 16


@pytest.mark.usefixtures("ray_here")
def test_code_that_only_the_driver_has_is_named_with_the_remedy(data, out, tmp_path, monkeypatch):
    only = tmp_path / "only"
    only.mkdir()
    (only / "only_here.py").write_text(MODEL + "DRIVER = 0\n")
    monkeypatch.syspath_prepend(only)
    import only_here

    with pytest.raises(cr.errors.ModelError, match=r"only_here.*--working-dir.*py_modules"):
        cr.score(cr.Classifier(only_here.Net()), data, out, **SMALL, engine=ONE)
    assert not Shards(out).path.exists()
    sys.modules.pop("only_here")


@pytest.mark.usefixtures("ray_here")
def test_from_a_store_to_a_store(loaded, data, tmp_path):
    from credibly.io.stores import place_of

    clf = loaded()
    with s3_server("bucket") as url:
        server = f"?endpoint_override={url.removeprefix('http://')}&scheme=http&region=us-east-1"
        place_of("s3://bucket/x.npy").upload(data)
        cr.score(clf, f"s3://bucket/x.npy{server}", "s3://bucket/rows/", **SMALL, engine=ONE)
        found = cr.verify_output("s3://bucket/rows/")
        assert (found.state, found.rows) == ("whole", ROWS)
        frames = [
            pd.read_parquet(place.open_input())
            for place in map(place_of("s3://bucket/rows").__truediv__, [
                f"part-{n:06d}.parquet" for n in range(3)
            ])
        ]  # fmt: skip
    local(clf, data, tmp_path)
    expected = pd.read_parquet(tmp_path / "expected.parquet")
    pd.testing.assert_frame_equal(pd.concat(frames, ignore_index=True), expected)


@pytest.mark.usefixtures("ray_here")
def test_workers_that_never_come_are_an_error_that_says_what_there_is(loaded, data, out):
    engine = cr.ray.Ray(workers=1, gpus_per_worker=1, patience=1.5)
    with pytest.raises(
        cr.errors.WorkerError, match=r"1 CPUs and 1 GPUs, and the cluster has 4 CPUs and 0 GPUs"
    ):
        cr.score(loaded(), data, out, **SMALL, engine=engine)


@pytest.mark.usefixtures("ray_here")
def test_a_folder_to_send_is_refused_where_ray_is_connected(loaded, data, out, tmp_path):
    engine = cr.ray.Ray(workers=1, working_dir=tmp_path)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"connected already.*runtime_env"):
        cr.score(loaded(), data, out, **SMALL, engine=engine)


def test_another_cluster_than_the_one_that_ray_is_connected_to_is_refused(
    loaded, data, out, ray_here, monkeypatch
):
    monkeypatch.setattr(ray_connection, "_knock", lambda _: None)
    here = ray_here.get_runtime_context().gcs_address
    with pytest.raises(cr.errors.InvalidArgumentError, match=rf"{here}, to which Ray is connected"):
        cr.score(loaded(), data, out, **SMALL, engine=cr.ray.Ray(address="127.0.0.1:1"))
    cr.score(loaded(), data, out, **SMALL, engine=cr.ray.Ray(address=here, workers=1))
    assert out.read_bytes() == local(loaded(), data, out.parent)


def test_a_model_that_cannot_be_sent_is_named(data, out, ray_here):
    import threading

    class Locked(nn.Linear):
        def __init__(self):
            super().__init__(4, 3)
            self.lock = threading.Lock()

    assert ray_here.is_initialized()
    with pytest.raises(
        cr.errors.ModelError, match=r"cannot be sent.*'_thread.lock'.*names a model"
    ):
        cr.score(cr.Classifier(Locked().double()), data, out, **SMALL, engine=ONE)
