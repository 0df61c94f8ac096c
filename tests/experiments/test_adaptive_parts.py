"""Parts of the adaptive table that need no finished run."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

import credibly as cr
from credibly.errors import FileFormatError, InvalidArgumentError
from experiments import adaptive
from experiments.adaptive_inputs import Counted
from experiments.adaptive_nearest import CarliniWagner, DeepFool
from experiments.adaptive_tables import interval, sign_test
from experiments.images import read_npz


def test_samples_without_a_score_do_not_set_thresholds(monkeypatch):
    values = torch.tensor([torch.nan, 3.0, 1.0, torch.nan, 2.0, 4.0])

    class Score:
        def __call__(self, _profile):
            return values

        def as_json(self):
            return {}

    for name in ("failure_score", "tamper_score"):
        monkeypatch.setattr(cr.scores, name, lambda _profile: Score())
    monkeypatch.setattr(cr, "credibility", lambda *_args, **_settings: None)
    monkeypatch.setattr(adaptive, "COVERAGE", {"A": 0.5, "T": 1.0})
    given = adaptive.parsed(["--out", "x"])
    found = adaptive.calibration(None, values, {"gamma": 1.0}, given)
    assert found["thresholds"] == {"A": 3.0, "T": 1.0}


def test_images_that_are_attacked_may_not_set_thresholds():
    x = torch.rand(5, 1, 4, 4)
    adaptive.refuse_common(x[:3], x[3:])
    with pytest.raises(InvalidArgumentError, match="1 that are both"):
        adaptive.refuse_common(x[:3], x[2:])


@pytest.mark.parametrize(
    ("attack", "slack"), [(DeepFool(), 0.021), (CarliniWagner(steps=200, searches=4), 0.05)]
)
def test_the_nearest_input_of_a_linear_network_is_known(attack, slack):
    random = torch.Generator().manual_seed(0)
    net = torch.nn.Linear(6, 4).double()
    with torch.no_grad():
        net.weight.copy_(torch.randn(4, 6, generator=random, dtype=torch.float64))
        net.bias.zero_()
    x = 0.4 + 0.2 * torch.rand(8, 6, generator=random, dtype=torch.float64)
    x[0] = 0.5
    outputs = net(x).detach()
    labels = outputs.argmax(1)
    apart = net.weight.detach()[None] - net.weight.detach()[labels][:, None]
    gaps = outputs.gather(1, labels[:, None]) - outputs
    away = (gaps / apart.norm(dim=2)).scatter(1, labels[:, None], torch.inf).amin(1)
    near = away < 0.3  # further ones meet the bounds
    found = attack(cr.Classifier(net.requires_grad_(False)), x, labels)
    size = (found - x).norm(dim=1)
    assert int(near.sum()) > 3
    assert bool((net(found).argmax(1) != labels)[near].all())
    assert bool((size >= away - 1e-9)[near].all())
    assert bool((size <= (1 + slack) * away + 2e-3)[near].all())


def test_files_of_images_are_read_and_checked(tmp_path):
    path = tmp_path / "some.npz"
    images = np.random.default_rng(0).integers(0, 256, (3, 5, 4, 2), dtype=np.uint8)
    np.savez(path, images=images, labels=np.array([1, 0, 2], np.uint8))
    found = read_npz(path)
    assert found.pixels.shape == (3, 2, 5, 4)
    assert torch.equal(found.as_bytes().pixels, torch.from_numpy(images).permute(0, 3, 1, 2))
    assert found.labels.tolist() == [1, 0, 2]
    np.savez(path, images=images.astype(np.float32), labels=np.zeros(3))
    with pytest.raises(InvalidArgumentError, match=r"`images`.*uint8.*float32"):
        read_npz(path)
    np.savez(path, images=images)
    with pytest.raises(FileFormatError, match="'labels'"):
        read_npz(path)


def test_a_folder_without_cells_is_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match="a folder with cells"):
        adaptive.main(["--tables", str(tmp_path)])


@pytest.mark.parametrize("hits", [0, 3, 10])
def test_intervals_are_those_of_wilson(hits):
    found = interval([1] * hits + [0] * (10 - hits))
    known = stats.binomtest(hits, 10).proportion_ci(method="wilson")
    assert found["rate"] == hits / 10
    assert math.isclose(found["low"], known.low, abs_tol=1e-6)
    assert math.isclose(found["high"], known.high, abs_tol=1e-6)


def test_passes_are_counted():
    net = Counted(torch.nn.Linear(3, 2))
    x = torch.rand(4, 3, requires_grad=True)
    net(x.detach())  # parameters alone: nothing goes back
    assert net.passes == pytest.approx(4 / 3)
    net(x).sum().backward()
    assert (net.passes, net.calls) == (pytest.approx(4 / 3 + 4), 2)


@pytest.mark.parametrize(("left", "right"), [(14, 2), (0, 0), (1, 2), (3, 3), (0, 9)])
def test_the_sign_test_is_that_of_scipy(left, right):
    first = [True] * left + [False] * right + [True, False]
    second = [False] * left + [True] * right + [True, False]
    found = sign_test(first, second)
    assert (found["only first"], found["only second"]) == (left, right)
    expected = stats.binomtest(left, left + right).pvalue if left + right else 1.0
    assert found["p"] == pytest.approx(expected)
