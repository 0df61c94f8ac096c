"""The adaptive table in the space of normalised inputs, and of networks in files."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import credibly as cr
from credibly.data.sample import load_sample
from credibly.errors import InvalidArgumentError, OutputError
from experiments import adaptive, adaptive_images, networks
from experiments.adaptive_nearest import CarliniWagner, DeepFool
from experiments.adaptive_work import Folder
from experiments.images import Images
from experiments.paper.world import MEAN, STD, World, embedded

EPS = 0.1
SMALL = [
    "--images", "3", "--radii", str(EPS), "--steps", "2", "--pgd-steps", "3", "--pgd-restarts", "2",
    "--apgd-steps", "3", "--model-queries", "3", "--queries", "1", "--effort", "0.1",
    "--gamma", "200", "--held-out-images", "8",
]  # fmt: skip
SOME = ["--systems", "B", "--no-sanity", "--attacks", "A", "deepfool"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("normalised")
    path = out / "adaptive-embedded.json"
    adaptive.main([*SMALL, *SOME, "--out", str(out), "--space", "normalised", "--json", str(path)])
    return out, json.loads(path.read_text("utf-8"))


def test_everything_found_is_the_image_of_pixels_and_near_in_its_own_units(finished):
    out, _ = finished
    x = (load_sample().images[:3] - MEAN) / STD
    files = list((out / "inputs").glob("linf*.safetensors"))
    assert {"apgd", "inverse", "pgd", "square"} <= {
        word for path in files for word in re.findall("[a-z]+", path.stem)
    }
    for path in files:
        (found,) = load_file(path).values()
        assert float((found.double() - x.double()).abs().max()) <= EPS
        assert float(found.min()) >= -MEAN / STD - 1e-6
        assert float(found.max()) <= (1 - MEAN) / STD + 1e-6
        assert float((found - x).abs().max()) > 0.3 * EPS  # more than eps in pixels would be


def test_cells_and_the_json_say_which_reading_they_are_of(finished):
    out, record = finished
    cells = [json.loads(path.read_text("utf-8")) for path in (out / "cells").glob("*.json")]
    assert {cell["settings"]["space"] for cell in cells} == {"normalised"}
    assert {cell["system"] for cell in cells} == {"b", "B"}
    assert record["network_sha256"] == World().network_sha256("embedded")
    assert (record["space"], record["gamma"]) == ("normalised", 200.0)
    tables = {table["system"]: table for table in record["tables"]}
    for table in tables.values():
        assert (table["norm"], table["radii"], table["images"]) == ("linf", [EPS], 3)
        assert set(table["worst"]) == {f"{EPS:g}"}
        worst = table["worst"][f"{EPS:g}"]
        assert 0 <= worst["low"] <= worst["rate"] <= worst["high"] <= 1
    assert {f"A{n}" for n in range(9)} == {
        word for name in tables["B"]["attacks"] for word in re.findall(r"A\d", name)
    }


def test_the_most_credible_class_alone_needs_no_thresholds(finished):
    out, record = finished
    assert not (out / "systems.json").exists()
    assert set(record["systems"]) == {"gamma", "solver"}


def test_spaces_are_not_mixed_in_a_folder(finished, tmp_path):
    out, _ = finished
    with pytest.raises(OutputError, match=r"space was normalised.*another folder"):
        adaptive.main([*SMALL, *SOME, "--out", str(out)])
    (tmp_path / "cells").mkdir()
    for space in ("pixel", "normalised"):
        cell = {"system": "B", "settings": {"space": space}}
        (tmp_path / "cells" / f"{space}.json").write_text(json.dumps(cell), "utf-8")
    with pytest.raises(InvalidArgumentError, match="cells of one space"):
        adaptive.main(["--tables", str(tmp_path)])


def test_the_nearest_input_is_the_same_point_in_both_spaces():
    trained, sample = embedded("embedded", "cpu"), load_sample()
    x, labels = sample.images[:3], sample.labels[:3]
    pixels = DeepFool()(cr.Classifier(trained.in_space("pixel")), x, labels)
    clf, moved = cr.Classifier(trained.in_space("normalised")), trained.to_space("normalised", x)
    box = trained.box("normalised")
    found = DeepFool(bounds=box)(clf, moved, labels)
    torch.testing.assert_close(found * STD + MEAN, pixels, rtol=0, atol=2e-3)
    nearest = CarliniWagner(steps=30, searches=2, bounds=box)(clf, moved, labels)
    assert box[0][0] <= float(nearest.min()) <= float(nearest.max()) <= box[1][0]
    assert bool((nearest != moved).any())


def saved(path, mean, std, channels=1, seed=0, **more):
    torch.manual_seed(seed)
    net = networks.build("resnet18, max-pool", channels=channels, classes=10)
    facts = {"arch": "resnet18, max-pool", "mean": mean, "std": std, **more}
    networks.save(path, net, facts)
    return path


def test_grey_images_of_a_file_are_attacked_without_held_out_ones(tmp_path):
    model = saved(tmp_path / "fashion.safetensors", "0.286", "0.353")
    random = np.random.default_rng(0)
    test = tmp_path / "test.npz"
    images = random.integers(0, 256, (4, 28, 28), dtype=np.uint8)
    np.savez(test, images=images, labels=np.arange(4, dtype=np.uint8))
    given = ["--model", str(model), "--test", str(test), "--space", "normalised", "--radii", "0.01",
             "0.02", "--attacks", "pgd (A0)", "--systems", "B", "--no-sanity", "--out",
             str(tmp_path / "out"), "--images", "2", "--pgd-steps", "2", "--pgd-restarts", "1",
             "--gamma", "200", "--effort", "0.1"]  # fmt: skip
    adaptive.main(given)
    cells = [json.loads(p.read_text("utf-8")) for p in (tmp_path / "out" / "cells").glob("B-linf*")]
    assert {cell["eps"]: cell["settings"]["step_size"] for cell in cells} == {
        0.01: 0.005, 0.02: 0.01,
    }  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="--data FOLDER"):
        adaptive.main([*given, "--systems", "T"])


def test_another_network_sees_the_pixels_whatever_its_own_statistics(tmp_path):
    model = saved(tmp_path / "one.safetensors", "0.5,0.4,0.3", "0.2,0.3,0.25", 3)
    other = saved(tmp_path / "other.safetensors", "0.1,0.2,0.6", "0.5,0.1,0.3", 3)
    pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    trained = networks.load(model)
    known = networks.load(other).net(pixels)
    for space in ("pixel", "normalised"):
        given = adaptive.parsed(
            ["--out", "x", "--space", space, "--model", str(model), "--transfer-model", str(other)]
        )
        found = adaptive._other(given, trained).logits(trained.to_space(space, pixels))
        torch.testing.assert_close(found, known, rtol=1e-4, atol=1e-4)
    low, high = trained.box("normalised")
    for pixel, ends in ((0.0, low), (1.0, high)):
        flat = trained.to_space("normalised", torch.full((1, 3, 2, 2), pixel))
        assert flat[0, :, 0, 0].tolist() == list(ends)


def test_a_folder_keeps_one_gamma(tmp_path):
    folder = Folder(tmp_path, tmp_path)
    given = adaptive.parsed(["--out", str(tmp_path), "--gamma", "50", "--effort", "0.1"])
    subject = adaptive.prepare(given, folder)
    assert {subject.systems[k].gamma for k in "BAT"} == {50.0}
    assert json.loads((tmp_path / "systems.json").read_text("utf-8"))["gamma"] == 50.0


def pgd_of(model, tmp_path, out):
    """What PGD found for a network, with the folder of inputs that all networks share."""
    test = tmp_path / "test.npz"
    images = np.random.default_rng(0).integers(0, 256, (2, 28, 28), dtype=np.uint8)
    np.savez(test, images=images, labels=np.arange(2, dtype=np.uint8))
    adaptive.main(
        ["--model", str(model), "--test", str(test), "--radii", "0.1", "--attacks", "pgd (A0)",
         "--systems", "B", "--no-sanity", "--out", str(tmp_path / out), "--inputs",
         str(tmp_path / "inputs"), "--images", "2", "--pgd-steps", "2", "--pgd-restarts", "1",
         "--gamma", "200", "--effort", "0.1"]
    )  # fmt: skip
    return next(iter(load_file(tmp_path / "inputs" / "linf-0.1-pgd-A0.safetensors").items()))


def test_inputs_of_one_network_are_not_taken_for_those_of_another(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = saved(tmp_path / "a" / "net.safetensors", "0.286", "0.353")
    two = saved(tmp_path / "b" / "net.safetensors", "0.286", "0.353", seed=1)
    first, second = pgd_of(one, tmp_path, "one"), pgd_of(two, tmp_path, "two")
    assert first[0] != second[0]
    assert not torch.equal(first[1], second[1])


def test_held_out_images_are_those_the_network_was_trained_without(monkeypatch):
    def split(_folder, part):
        start = {"train": 100, "test": 0}[part]
        values = torch.arange(start, start + 20)
        return Images(values.reshape(-1, 1, 1, 1) / 255, values)

    monkeypatch.setattr(adaptive_images.cifar10, "load", split)
    common = ["--out", "x", "--model", "y", "--data", "z", "--images", "3"]
    given = adaptive.parsed(common)
    for count in (4, 7):
        test, held = adaptive_images.load_images(given, {"held_out": str(count)})
        assert test.labels.tolist() == [0, 1, 2]
        assert held.labels.tolist() == list(range(120 - count, 120))
    for facts in ({"held_out": "0"}, {}):
        with pytest.raises(InvalidArgumentError, match="no held-out slice"):
            adaptive_images.load_images(given, facts)
        unneeded = adaptive.parsed([*common, "--systems", "B", "--gamma", "200"])
        assert len(adaptive_images.load_images(unneeded, facts)[1]) == 0


def test_classes_that_a_network_was_trained_without_are_dropped_and_labels_numbered_anew(
    monkeypatch, tmp_path
):
    def split(_folder, part):
        start = {"train": 100, "test": 0}[part]
        values = torch.arange(start, start + 20)
        return Images(values.reshape(-1, 1, 1, 1) / 255, values % 10)

    monkeypatch.setattr(adaptive_images.cifar10, "load", split)
    facts = {"held_out": "15", "left_out": "3,9"}
    common = ["--out", "x", "--model", "y", "--images", "10"]
    from_folder = adaptive.parsed([*common, "--data", "z"])
    bytes_of = {part: split("", part) for part in ("train", "test")}
    for part, found in bytes_of.items():
        raw = found.as_bytes().pixels[:, 0].numpy()
        np.savez(tmp_path / f"{part}.npz", images=raw, labels=found.labels.numpy())
    files = ["--test", str(tmp_path / "test.npz"), "--held-out", str(tmp_path / "train.npz")]
    from_files = adaptive.parsed([*common, *files])
    names = [0, 1, 2, 4, 5, 6, 7, 8]  # of the eight logits
    for given, held_count in ((from_folder, 12), (from_files, 16)):
        both = adaptive_images.load_images(given, facts)
        assert [len(part) for part in both] == [10, held_count]
        for part in both:
            made_with = part.as_bytes().pixels.flatten().long() % 10
            assert [names[label] for label in part.labels.tolist()] == made_with.tolist()
    oldest = (255 * adaptive_images.load_images(from_folder, facts)[1].pixels).min()
    assert round(float(oldest)) == 105  # the last 15, of which 109, 113 and 119 are gone


def test_an_eight_class_network_is_attacked_with_its_own_labels(tmp_path):
    torch.manual_seed(0)
    net = networks.build("resnet18, max-pool", channels=1, classes=8)
    facts = {"arch": "resnet18, max-pool", "mean": "0.286", "std": "0.353", "left_out": "3,9"}
    model, other = tmp_path / "eight.safetensors", tmp_path / "ten.safetensors"
    networks.save(model, net, facts)
    saved(other, "0.286", "0.353")
    raw = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8)
    np.savez(tmp_path / "t.npz", images=raw, labels=np.array([9, 8, 3, 4, 0, 9], np.uint8))
    given = ["--model", str(model), "--test", str(tmp_path / "t.npz"), "--systems", "B",
             "--gamma", "200", "--out", str(tmp_path / "out"), "--images", "5"]  # fmt: skip
    folder = Folder(tmp_path / "out", tmp_path / "out")
    subject = adaptive.prepare(adaptive.parsed(given), folder)
    assert subject.labels.tolist() == [7, 3, 0]
    expected = torch.from_numpy(raw[[1, 3, 4]]).float().unsqueeze(1) / 255
    assert torch.equal(subject.x, expected)
    empty = Folder(tmp_path / "empty", tmp_path / "empty")
    with pytest.raises(InvalidArgumentError, match=r"transfer-model.*\(3, 9\).*without none"):
        adaptive.prepare(adaptive.parsed([*given, "--transfer-model", str(other)]), empty)
    assert not empty.out.exists()
