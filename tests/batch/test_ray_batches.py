"""Batches of Ray Data get the verdicts and profiles that files get, in any format."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch import nn

import credibly as cr
from credibly.io.nested import array_of

pytestmark = pytest.mark.xdist_group("ray")

X = np.random.default_rng(0).normal(size=(12, 2, 2))
X[3] = 40.0


@pytest.fixture
def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double().eval()


@pytest.fixture
def judge(net):
    return cr.Judge.fit(net, np.random.default_rng(1).normal(size=(200, 2, 2)))


def expected(judge, tmp_path):
    np.save(tmp_path / "x.npy", X)
    cr.judge_file(judge, tmp_path / "x.npy", tmp_path / "v.parquet", chunk_size=5, overwrite=True)
    return pd.read_parquet(tmp_path / "v.parquet").drop(columns="id")


def test_verdicts_are_those_of_a_file_in_every_format(net, judge, tmp_path):
    batches = cr.ray.JudgeBatches(net, judge, inputs="x", chunk_size=5)
    keys = np.arange(12)
    arrow = pa.table({"key": keys, "x": X.tolist()})
    frame = pd.DataFrame({"key": keys, "x": X.tolist()})
    for batch in (arrow, {"key": keys, "x": X}, frame, {"key": keys, "x": objects(X)}):
        found = batches(batch)
        assert type(found) is type(batch)
        table = found.to_pandas() if isinstance(found, pa.Table) else pd.DataFrame(dict(found))
        assert table.pop("key").tolist() == keys.tolist()
        pd.testing.assert_frame_equal(table, expected(judge, tmp_path), check_dtype=False)


def objects(x):
    rows = np.empty(len(x), dtype=object)
    rows[:] = list(x)
    return rows


def test_a_saved_judge_and_a_named_model_are_loaded_where_they_arrive(judge, tmp_path, net):
    judge.save(tmp_path / "judge")
    batches = cr.ray.JudgeBatches(net, tmp_path / "judge", inputs="x", chunk_size=5)
    batches({"x": X})
    arrived = pickle.loads(pickle.dumps(batches))  # noqa: S301
    assert arrived._ready is None
    found = pd.DataFrame(arrived({"x": X}))
    pd.testing.assert_frame_equal(found, expected(judge, tmp_path), check_dtype=False)
    named = cr.ray.ProfileBatches("credibly.data.sample:classifier", inputs="image", gamma=200.0)
    assert named._model.live is None


def test_profiles_of_named_columns_are_those_of_a_table(tmp_path):
    clf = cr.Classifier(nn.Linear(2, 3).double().eval(), space=cr.Space(columns=["p", "q"]))
    frame = pd.DataFrame(X[:, 0], columns=["p", "q"]).assign(key="k")
    frame.loc[2, "q"] = np.nan
    frame.to_parquet(tmp_path / "x.parquet")
    source = cr.open_source(tmp_path / "x.parquet", drop=["key"])
    cr.score(clf, source, tmp_path / "out.parquet", gamma=2.0, chunk_size=4)
    wanted = pd.read_parquet(tmp_path / "out.parquet").drop(columns="id")
    batches = cr.ray.ProfileBatches(clf, inputs=["p", "q"], gamma=2.0, chunk_size=4)
    found = pd.concat([batches(frame[:8]), batches(frame[8:])], ignore_index=True)
    assert found.pop("key").tolist() == ["k"] * 12
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False)
    assert found["status"][2] == "non finite input"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cr.ray.ProfileBatches(nn.Linear(2, 3), inputs="x"), "gamma"),
        (lambda: cr.ray.ProfileBatches(nn.Linear(2, 3), inputs="x", gamma="auto"), "auto_gamma"),
        (lambda: cr.ray.ProfileBatches(nn.Linear(2, 3), inputs=[], gamma=1.0), "inputs"),
        (lambda: cr.ray.JudgeBatches(nn.Linear(2, 3), "nowhere", inputs="x"), "judge"),
    ],
)
def test_bad_settings_are_refused(make, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        make()


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ({"y": X}, r"`inputs`: expected the columns \['x'\], got a batch with y"),
        ({"x": X, "status": np.zeros(12)}, r"not called like those of the result.*status"),
        ({"x": np.array(["a"] * 12)}, r"string, which are no numbers"),
        (pa.table({"x": [[1.0, 2.0], [3.0]]}), r"lists of several lengths"),
        ([1, 2], "batch_format"),
    ],
)
def test_a_batch_that_does_not_fit_is_named(net, batch, words):
    with pytest.raises(cr.errors.CrediblyError, match=words):
        cr.ray.ProfileBatches(net, inputs="x", gamma=1.0)(batch)


def test_columns_in_another_order_than_the_model_knows_are_refused():
    clf = cr.Classifier(nn.Linear(2, 3).double().eval(), space=cr.Space(columns=["p", "q"]))
    batches = cr.ray.ProfileBatches(clf, inputs=["q", "p"], gamma=1.0)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"\['p', 'q'\].*in that order"):
        batches({"p": X[:, 0, 0], "q": X[:, 0, 1]})


def test_lists_of_any_kind_become_arrays():
    flat = pa.array(X.reshape(-1))
    fixed = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(flat, 2), 2)
    for column in (
        fixed, fixed.slice(0), pa.chunked_array([fixed.slice(0, 5), fixed.slice(5)]),
        pa.array(X.tolist()), pa.FixedShapeTensorArray.from_numpy_ndarray(X),
    ):  # fmt: skip
        np.testing.assert_array_equal(array_of(column), X)
    np.testing.assert_array_equal(array_of(fixed.slice(2, 3)), X[2:5])
    gaps = array_of(pa.array([[1, 2], None, [3, None]]))
    np.testing.assert_array_equal(gaps, [[1, 2], [np.nan, np.nan], [3, np.nan]])


@pytest.mark.filterwarnings("ignore")  # those of Ray Data at its own settings
def test_a_dataset_of_ray_is_judged_by_actors(ray_here, net, judge, tmp_path):
    import ray.data

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    assert ray_here.is_initialized()
    dataset = ray.data.from_arrow(pa.table({"key": np.arange(12), "x": X.tolist()}))
    found = dataset.map_batches(
        cr.ray.JudgeBatches,
        fn_constructor_args=(net, judge),
        fn_constructor_kwargs={"inputs": "x", "chunk_size": 5},
        batch_format="pyarrow",
        batch_size=None,
        concurrency=1,
    ).to_pandas()
    found = found.sort_values("key", ignore_index=True)
    assert found.pop("key").tolist() == list(range(12))
    pd.testing.assert_frame_equal(found, expected(judge, tmp_path), check_dtype=False)
    assert torch.get_num_threads() == 1
