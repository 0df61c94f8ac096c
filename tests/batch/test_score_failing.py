"""Rows on which the model raises cost nobody else."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import credibly as cr
from credibly.batch.shards import Shards


class Picky(nn.Module):
    """Refuses inputs above ten, as a model with a domain would."""

    def forward(self, x):
        if bool((x > 10).any()):
            message = "out of my domain"
            raise ValueError(message)
        return x[:, :3]


def test_a_row_on_which_the_model_raises_costs_only_itself(tmp_path, out):
    clf = cr.Classifier(Picky(), dtype=torch.float64)
    x = np.random.default_rng(0).normal(size=(9, 4))
    x[5, 0] = 11.0
    np.save(tmp_path / "x.npy", x)
    report = cr.score(clf, tmp_path / "x.npy", out, gamma=1.0, chunk_size=5)
    assert report.statuses["model failed"] == 1
    assert "raised an exception" in report.summary()
    frame = pd.read_parquet(out)
    assert frame["status"].tolist().index("model failed") == 5
    assert frame["risk"].isna().sum() == 1


def test_gamma_is_set_by_the_rows_on_which_the_model_does_not_raise(tmp_path, out):
    clf = cr.Classifier(Picky(), dtype=torch.float64)
    x = np.random.default_rng(0).normal(size=(9, 4))
    x[5, 0] = 11.0
    np.save(tmp_path / "x.npy", x)
    report = cr.score(clf, tmp_path / "x.npy", out)
    assert report.statuses["model failed"] == 1
    assert report.gamma == cr.auto_gamma(clf, torch.from_numpy(np.delete(x, 5, axis=0)))
    x[2:] = 11.0  # no row is left
    x[:2] = np.nan
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(cr.errors.ModelError):
        cr.score(clf, tmp_path / "x.npy", out, overwrite=True)
    assert not Shards(out).path.exists()


def test_a_whole_chunk_of_such_rows_stops_nobody(tmp_path, out):
    clf = cr.Classifier(Picky(), dtype=torch.float64)
    x = np.random.default_rng(0).normal(size=(7, 4))
    x[6] = 11.0
    np.save(tmp_path / "x.npy", x)
    report = cr.score(clf, tmp_path / "x.npy", out, gamma=1.0, chunk_size=3)
    assert report.statuses["model failed"] == 1


class PickyInside(nn.Module):
    """The same with a part that can be named."""

    def __init__(self):
        super().__init__()
        self.part = nn.Identity()

    def forward(self, x):
        return Picky()(self.part(x))


@pytest.mark.parametrize("settings", [{"module": "part"}, {}], ids=["module", "inputs"])
@pytest.mark.parametrize("bad", [[0], [5], [0, 1, 4]])
@pytest.mark.parametrize("gamma", [1.0, "auto"])
def test_a_row_on_which_the_model_raises_may_be_among_the_first(
    tmp_path, out, *, settings, bad, gamma
):
    clf = cr.Classifier(PickyInside(), dtype=torch.float64, **settings)
    x = np.random.default_rng(0).normal(size=(9, 4))
    good = [n for n in range(9) if n not in bad]
    x[bad, 0] = 11.0
    np.save(tmp_path / "x.npy", x)
    report = cr.score(clf, tmp_path / "x.npy", out, gamma=gamma, chunk_size=4)
    frame = pd.read_parquet(out)
    assert [n for n, status in enumerate(frame["status"]) if status == "model failed"] == bad
    rows = torch.from_numpy(x[good])
    assert report.gamma == (cr.auto_gamma(clf, rows) if gamma == "auto" else gamma)
    expected = cr.credibility(clf, rows, gamma=report.gamma).risk
    np.testing.assert_allclose(frame["risk"][good], expected, rtol=1e-6)
    assert frame["risk"][bad].isna().all()


class PickyOfNaN(PickyInside):
    """Refuses NaN as well."""

    def forward(self, x):
        if bool(x.isnan().any()):
            message = "not a number"
            raise ValueError(message)
        return super().forward(x)


@pytest.mark.parametrize("settings", [{"module": "part"}, {}], ids=["module", "inputs"])
def test_a_model_that_refuses_gaps_too_is_not_asked_about_them(tmp_path, out, settings):
    clf = cr.Classifier(PickyOfNaN(), dtype=torch.float64, **settings)
    x = np.random.default_rng(0).normal(size=(9, 4)).clip(-2, 2)
    x[1, 2], x[4, 0], x[7, 1] = np.nan, 11.0, -5.0
    x[6] = np.nan
    np.save(tmp_path / "x.npy", x)
    cr.score(clf, tmp_path / "x.npy", out, bounds=(-4.0, 20.0), chunk_size=3)
    frame = pd.read_parquet(out)
    bad = {1: "non finite input", 4: "model failed", 6: "non finite input", 7: "outside bounds"}
    found = dict(enumerate(frame["status"]))
    assert {n: found[n] for n in bad} == bad
    assert set(np.delete(frame["status"], list(bad))) <= {"converged", "stalled"}
    assert frame["risk"].isna().tolist() == [n in bad for n in range(9)]


class Mortal(nn.Module):
    """Works for a while, as a device does that is about to fail."""

    left = 10**9

    def forward(self, x):
        self.left -= 1
        if self.left < 0:
            message = "the device is gone"
            raise RuntimeError(message)
        return x[:, :3]


def test_a_model_that_stops_working_is_named_and_finished_rows_are_kept(tmp_path, out):
    net = Mortal()
    clf = cr.Classifier(net, dtype=torch.float64)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(9, 4)))

    def dies(share):
        net.left = 0 if share > 0.6 else net.left

    settings = {"gamma": 1.0, "chunk_size": 3, "shard_size": 3}
    with pytest.raises(
        cr.errors.ModelError, match="rows 6 to 8 with RuntimeError: the device is gone"
    ):
        cr.score(clf, tmp_path / "x.npy", out, **settings, progress=dies)
    net.left = 10**9
    assert cr.score(clf, tmp_path / "x.npy", out, **settings).resumed == 6


class Square(nn.Module):
    """Single precision, with losses as large as the inputs."""

    def forward(self, x):
        return x


@pytest.mark.parametrize("bad", [0, 5])
def test_one_row_that_is_too_large_for_gamma_costs_only_itself(tmp_path, out, bad):
    clf = cr.Classifier(Square(), dtype=torch.float32)
    x = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    x[bad, 0] = 1e19
    np.save(tmp_path / "x.npy", x)
    report = cr.score(clf, tmp_path / "x.npy", out, gamma=0.01, chunk_size=4)
    assert report.statuses["non finite model"] == 1
    assert pd.read_parquet(out)["status"].tolist().index("non finite model") == bad
    x[:, 0] = 1e19
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`gamma`.*too small"):
        cr.score(clf, tmp_path / "x.npy", out, gamma=0.01, overwrite=True)


def test_no_number_is_nan_without_a_status_that_explains_it(tmp_path, out):
    steep = torch.tensor([[1e12, -1e12, 0.0], [0.0, 1e12, -1e12], [3e11, 0.0, 5e11]])
    clf = cr.Classifier(lambda x: x @ steep, dtype=torch.float32)
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    x *= np.logspace(-12, 6, 40, dtype=np.float32)[:, None]
    np.save(tmp_path / "x.npy", x)
    cr.score(clf, tmp_path / "x.npy", out, gamma=1.0)
    frame = pd.read_parquet(out)
    numbers = [name for name in frame if name == "risk" or "." in name]
    unknown = ~np.isfinite(frame[numbers].to_numpy()).all(1)
    assert 0 < int(unknown.sum()) < 40
    assert set(frame["status"][unknown]) <= {"non finite model", "non finite input"}


@pytest.mark.parametrize("ending", ["npy", "csv"])
def test_a_model_of_another_width_is_named_although_every_row_is_nan(tmp_path, out, clf, *, ending):
    path = tmp_path / f"x.{ending}"
    if ending == "npy":
        np.save(path, np.full((5, 7), np.nan))
    else:
        pd.DataFrame(np.full((5, 7), np.nan), columns=list("abcdefg")).to_csv(path, index=False)
    words = "7 columns as features" if ending == "csv" else r"shape \(7,\), as in .*x\.npy"
    with pytest.raises(cr.errors.ModelError, match=words):
        cr.score(clf, path, out, gamma=1.0)
    assert not Shards(out).path.exists()
