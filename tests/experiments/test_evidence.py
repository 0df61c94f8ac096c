"""The evidence from end to end on the embedded network, in a small way."""

import argparse
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from torch import nn

import credibly as cr
from credibly.baselines import MaxLogitPNorm, TemperatureScaled
from credibly.data.sample import load_sample
from credibly.decide.scores import SCORES
from credibly.io.fingerprints import digest_of_tensor
from credibly.study import read_study
from experiments import evidence, evidence_sets, evidence_subject, evidence_tables
from experiments.images import Images, as_pixels, left_out, read_npz
from tests.reference import models

SIZES = ["30", "6", "8", "8", "6"]
FIRST = ["ordinary", "uniform*", "contrast 1", "contrast 3"]
SECOND = ["PGD 0.001", "DeepFool", "held-out/held-out", "held-out/PGD 0.001", "held-out/uniform*"]


@pytest.fixture(scope="module")
def held_out(tmp_path_factory):
    """Embedded images of which the network has many wrong, in a file."""
    sample = load_sample()
    rows = torch.arange(800, 1000)
    with torch.no_grad():
        wrong = sample.net(sample.images[rows]).argmax(1) != sample.labels[rows]
    some = torch.cat([rows[wrong], rows[~wrong][:25]])
    path = tmp_path_factory.mktemp("held") / "held.npz"
    raw = (255 * sample.images[some, 0]).round().byte().numpy()
    np.savez(path, images=raw, labels=sample.labels[some].numpy())
    return path, sample.images[some], sample.labels[some]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, held_out):
    """Two runs with sets of their own, in one folder."""
    out = tmp_path_factory.mktemp("out")
    words = ["--out", str(out), "--held-out", str(held_out[0]), "--votes", "2", "--sizes", *SIZES]
    records = []
    for sets in (FIRST, SECOND):
        evidence.main([*words, "--sets", *sets])
        records.append([(out / name).read_bytes() for name in ("chosen.json", "study.json")])
    assert records[0] == records[1]
    return out


def test_what_is_chosen_comes_from_the_held_out_images(folder, held_out):
    _, images, labels = held_out
    clf = cr.Classifier(load_sample().net)
    record = json.loads((folder / "chosen.json").read_text())
    chosen = record["resolved"]
    assert chosen["gamma"] == cr.auto_gamma(clf, images)
    with torch.no_grad():
        logits = clf.logits(images).double()
    assert chosen["temperature"] == pytest.approx(
        TemperatureScaled.fit(logits, labels).temperature, rel=1e-5
    )
    right = logits.argmax(1) == labels
    areas = {p: cr.metrics.aurc(MaxLogitPNorm(p=p).of_logits(logits), right) for p in range(1, 11)}
    assert areas[chosen["power"]] == min(areas.values())
    assert record["settings"]["held_out"] == digest_of_tensor(images)
    for name in ("study.json", "held-out/study.json"):
        assert json.loads((folder / name).read_text())["resolved"]["gamma"] == chosen["gamma"]


def test_the_sets_asked_for_are_there(folder):
    rows = read_study(folder)
    assert set(rows) == {
        "clean", "uniform noise", "contrast 1", "contrast 3", "PGD 0.001", "DeepFool",
    }  # fmt: skip
    assert set(read_study(folder / "held-out")) == {"held-out", "PGD 0.001", "uniform noise"}
    assert len(rows["clean"].labels) == 30
    assert not bool(rows["DeepFool"].correct.any())
    assert set(rows["clean"].scores["noise vote (baseline)"].tolist()) <= {0.0, 0.5, 1.0}
    with safe_open(folder / "pgd-0.001.safetensors", "pt") as file:
        words = file.metadata()["inputs"]
    assert "PGD(" in words
    assert digest_of_tensor(load_sample().images[:8]) in words


def test_other_inputs_are_noticed(folder, held_out):
    words = ["--out", str(folder), "--held-out", str(held_out[0]), "--votes", "2"]
    with pytest.raises(cr.errors.InvalidArgumentError, match="parts with inputs sha256"):
        evidence.main([*words, "--sizes", "29", *SIZES[1:], "--sets", "clean"])
    with pytest.raises(cr.errors.InvalidArgumentError, match="parts with inputs made: PGD"):
        evidence.main([*words, "--sizes", "30", "6", "7", "8", "6", "--sets", "PGD 0.001"])
    with pytest.raises(cr.errors.OutputError, match="votes was 2 and is now 3"):
        evidence.main([*words, "--votes", "3"])
    with pytest.raises(cr.errors.OutputError, match="held_out was"):
        evidence.main(["--out", str(folder), "--votes", "2"])
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`--sets`.*\['PGD 7'\]"):
        evidence.main([*words, "--sets", "PGD 7"])
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`--near`.*left_out"):
        evidence.main([*words, "--near"])


def test_tables_are_printed_and_written(folder, tmp_path, capsys):
    out = tmp_path / "numbers.json"
    evidence_tables.main([str(folder), "--out", str(out), "--resamples", "20"])
    found = json.loads(out.read_text())
    assert set(found["failures"]["groups"]) == {
        "clean", "damaged, severity 1-2", "damaged, severity 3-5", "PGD 0.001",
    }  # fmt: skip
    assert set(found["outliers"]) == {"uniform noise"}
    assert set(found["tampering"]) == {"PGD 0.001", "DeepFool"}
    assert found["study"]["chosen on held-out"]["votes"] == 2
    printed = capsys.readouterr().out
    assert "AUROC against clean images: outliers" in printed
    evidence_tables.main([str(folder), "--choose"])
    assert "p-norm + 0.5 predicted_ratio" in capsys.readouterr().out


def test_a_profile_knows_the_p_norm_and_the_odds():
    """Credibilities at x0 are logits up to a constant, so these need no further forward."""
    clf, x = cr.Classifier(models.smooth_network()), models.inputs(7)
    profile = cr.credibility(clf, x, gamma=30.0)
    assert torch.allclose(SCORES["p_norm"](profile), MaxLogitPNorm()(clf, x), rtol=1e-9)
    for one in (MaxLogitPNorm(), MaxLogitPNorm(p=7), TemperatureScaled(temperature=1.7)):
        assert torch.allclose(one.of_logits(profile.credence), one(clf, x), rtol=1e-9, atol=1e-12)


def test_near_outliers_are_the_classes_left_out(monkeypatch):
    labels = torch.tensor([0, 3, 9, 4, 8, 3, 2])
    data = Images(torch.arange(7.0).reshape(7, 1, 1, 1).expand(-1, 3, 4, 4) / 10, labels)
    train = Images(data.pixels.flip(0), data.labels.flip(0))
    monkeypatch.setattr(
        evidence_subject, "read_split", lambda _, __, part: data if part == "test" else train
    )
    facts = {"left_out": "3,9", "held_out": "4"}
    monkeypatch.setattr(
        evidence_subject.networks, "load", lambda _: SimpleNamespace(net=nn.Flatten(), facts=facts)
    )
    given = {"model": "file", "dataset": "cifar10", "data": "folder", "device": "cpu"}
    rest = {"held_out": None, "mnist": None, "other": None}
    found = evidence_subject.load(argparse.Namespace(**given, **rest))
    # the classes 0 1 2 4 5 6 7 8 have the logits 0 to 7
    assert found.test.labels.tolist() == [0, 3, 7, 2]
    assert torch.equal(found.test.pixels, data.pixels[[0, 3, 4, 6]])
    assert torch.equal(found.near, data.pixels[[1, 2, 5]])
    assert found.held_out.labels.tolist() == [3, 0]  # of 4, 9, 3, 0: the last four of training
    assert torch.equal(found.held_out.pixels, data.pixels[[3, 0]])
    del facts["held_out"]
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`--held-out`.*not trained on"):
        evidence_subject.load(argparse.Namespace(**given, **rest))


def test_a_file_without_the_key_left_out_changes_no_labels():
    data = Images(torch.zeros(3, 1, 2, 2), torch.tensor([9, 3, 0]))
    assert data.without(left_out({})) is data


def test_images_of_other_sets_take_the_form_of_these(tmp_path):
    random = np.random.default_rng(0)
    grey = as_pixels(random.integers(0, 256, (2, 28, 28), dtype=np.uint8))
    colour = as_pixels(random.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8))
    assert grey.shape == (2, 1, 28, 28)
    assert colour.shape == (2, 3, 32, 32)
    wide, flat = evidence_subject.resize(grey, colour), evidence_subject.resize(colour, grey)
    assert wide.shape == colour.shape
    assert torch.equal(wide[:, 0], wide[:, 2])
    assert flat.shape == grey.shape
    assert flat.mean().item() == pytest.approx(colour.mean().item(), abs=0.02)
    assert torch.equal(evidence_subject.resize(colour, colour), colour)
    np.savez(tmp_path / "bad.npz", images=random.random((2, 4, 4)), labels=np.zeros(2))
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"`images`.*uint8.*float64"):
        read_npz(tmp_path / "bad.npz")


def test_shuffled_patches_are_the_same_patches_elsewhere():
    x = torch.rand(3, 2, 8, 12, generator=models.generator(0))
    found = evidence_sets.shuffled(x)
    assert not torch.equal(found, x)
    for before, after in zip(x, found, strict=True):
        tiles = [
            sorted(image[:, r : r + 2, c : c + 3].flatten().tolist() for r in range(0, 8, 2)
                   for c in range(0, 12, 3))
            for image in (before, after)
        ]  # fmt: skip
        assert tiles[0] == tiles[1]
    order = [(found[n] == x[n]).flatten(1).any(0).tolist() for n in range(3)]
    assert order[0] != order[1] or order[1] != order[2]
    assert not torch.equal(
        evidence_sets.noise(x, uniform=True, seed=0), evidence_sets.noise(x, uniform=True, seed=1)
    )
