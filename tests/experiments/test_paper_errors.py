"""What the reproduction says when folders, files or devices are not what they should be."""

import hashlib
import json
import tarfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from credibly.errors import FileFormatError
from experiments import cifar10, networks
from experiments.paper import command
from experiments.paper.cache import Cache

NAME = "cifar10-resnet18-seed0"


def arguments(folder, *more):
    given = {"--cache": folder / "cache", "--out": folder / "out"}
    return [*(str(part) for pair in given.items() for part in pair), *more]


@pytest.fixture
def nothing_computed(monkeypatch):
    def load(*_):
        raise AssertionError("something was computed")

    monkeypatch.setattr(Cache, "load", load)


@pytest.mark.usefixtures("nothing_computed")
@pytest.mark.parametrize("which", ["--out", "--cache"])
@pytest.mark.parametrize("under", ["", "folder"])
def test_folders_that_cannot_be_written_to_are_refused_first(tmp_path, capsys, which, under):
    taken = tmp_path / "file"
    taken.write_text("not a folder", "utf-8")
    more = ("--small", "--figure", "compromise", which, str(taken / under))
    assert command.main(arguments(tmp_path, *more)) == 1
    assert "error: cannot write to" in capsys.readouterr().out


@pytest.mark.usefixtures("nothing_computed")
@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there_is_refused_in_words(tmp_path, capsys, device):
    assert command.main(arguments(tmp_path, "--small", "--device", device)) == 1
    out = capsys.readouterr().out
    assert "error: `--device`: expected a device that torch finds here" in out
    assert f"got '{device}'" in out


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"kind": "seeds", "settings": {}}'])
def test_json_that_is_no_figure_is_refused_in_words(tmp_path, capsys, text):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "seeds.json").write_text(text, "utf-8")
    for way in ("--draw", "--small"):
        assert command.main(arguments(tmp_path, way)) == 1
        assert "Delete it and make the figure again" in capsys.readouterr().out


def published(folder, monkeypatch):
    """A test set of two images, and the checksums it would have."""
    folder.mkdir()
    rows = torch.arange(2 * 3073).remainder(251).byte().reshape(2, 3073).numpy()
    rows[:, 0] = (3, 5)
    (folder / "test_batch.bin").write_bytes(rows.tobytes())
    images = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    parts = {"test images": images.copy(), "test labels": rows[:, 0].copy()}
    sums = {name: hashlib.sha256(part.tobytes()).hexdigest() for name, part in parts.items()}
    monkeypatch.setattr(cifar10, "SHA256", sums)
    return folder


@pytest.mark.usefixtures("nothing_computed")
@pytest.mark.parametrize("content", ["junk", "cut", "another"])
def test_a_damaged_checkpoint_is_skipped_with_a_line(tmp_path, capsys, monkeypatch, content):
    data = published(tmp_path / "data", monkeypatch)
    path = tmp_path / f"{NAME}.safetensors"
    save_file({"x": torch.zeros(100)}, path)
    whole = path.read_bytes()
    path.write_bytes({"junk": b"junk", "cut": whole[:-8], "another": whole}[content])
    given = ("--checkpoints", str(tmp_path), "--cifar10", str(data))
    assert command.main(arguments(tmp_path, *given)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"compromise: skipped, {path}") for line in lines)
    assert lines[-1].startswith("not made: compromise")
    assert command.main(arguments(tmp_path, *given, "--figure", "compromise")) == 1
    with pytest.raises(FileFormatError, match=NAME):
        networks.load(path)


@pytest.mark.parametrize("damage", ["cut", "junk"])
def test_a_damaged_archive_of_images_is_refused_in_words(tmp_path, monkeypatch, damage):
    data = published(tmp_path / "data", monkeypatch)
    archive = tmp_path / "packed" / "cifar-10-binary.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(data, arcname="batches")
    assert cifar10.load(archive.parent, "test").labels.tolist() == [3, 5]
    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2] if damage == "cut" else b"junk")
    with pytest.raises(FileFormatError, match=r"tar\.gz cannot be read to its end"):
        cifar10.load(archive.parent, "test")


def test_a_damaged_png_of_images_is_refused_in_words(tmp_path):
    (tmp_path / "test_batch.png").write_bytes(b"junk")
    (tmp_path / "test_lables.json").write_text("[3, 5]", "utf-8")
    with pytest.raises(FileFormatError, match="a PNG of CIFAR-10 is damaged"):
        cifar10.load(tmp_path, "test")


@pytest.mark.parametrize(
    ("facts", "change", "said"),
    [
        ({}, {"conv1.weight": None}, "no weights of a first and a last layer"),
        ({}, {"layer1.0.conv1.weight": None}, "Missing key"),
        ({"arch": "densenet169"}, {}, "does not hold the weights of a densenet169"),
        ({}, {"fc.bias": torch.full((3,), torch.nan)}, "not finite in fc.bias"),
        ({"mean": "a"}, {}, "its mean is not a list of numbers: 'a'"),
    ],
)
def test_a_checkpoint_that_holds_no_network_is_refused_by_name(tmp_path, facts, change, said):
    net = networks.build("resnet18, no max-pool", channels=3, classes=3)
    weights = {name: value.half() for name, value in net.state_dict().items()} | change
    whole = {"arch": "resnet18, no max-pool", "mean": "0.5", "std": "0.2", **facts}
    kept = {name: value.contiguous() for name, value in weights.items() if value is not None}
    save_file(kept, tmp_path / f"{NAME}.safetensors", whole)
    with pytest.raises(FileFormatError, match=f"{NAME}.safetensors") as caught:
        networks.load(tmp_path / f"{NAME}.safetensors")
    assert said in str(caught.value)


def test_verdicts_on_older_figures_are_not_shown_as_those_of_a_run_that_made_none(tmp_path, capsys):
    (tmp_path / "out").mkdir()
    published = Path(__file__).parents[2] / "results" / "paper" / "readings.json"
    (tmp_path / "out" / "readings.json").write_bytes(published.read_bytes())
    assert command.main(arguments(tmp_path, "--figure", "readings")) == 1
    out = capsys.readouterr().out
    assert "not made: readings" in out
    assert "verdict" not in out
    assert not (tmp_path / "out" / "claims.json").exists()


def test_an_interrupted_run_ends_with_a_line(tmp_path, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "make_figure", interrupted)
    assert command.main(arguments(tmp_path, "--small")) == 130
    assert "continues with what is in the cache" in capsys.readouterr().out


def test_small_figures_do_not_go_where_those_of_the_full_scale_are():
    assert command.parsed(["--small"]).out == Path(".cache/paper-small")
    assert command.parsed([]).out == Path("results/paper")
    assert command.parsed(["--small", "--out", "here"]).out == Path("here")


def test_a_figure_of_the_full_scale_is_not_replaced_by_a_small_one(tmp_path, capsys):
    path = tmp_path / "out" / "seeds.json"
    path.parent.mkdir()
    record = {"kind": "seeds", "results": {}, "settings": {"dataset": "cifar10"}}
    text = json.dumps(record)
    path.write_text(text, "utf-8")
    for figure in ("seeds", "compromise"):  # the claims would be replaced by either
        assert command.main(arguments(tmp_path, "--small", "--figure", figure)) == 1
        assert "with seeds" in capsys.readouterr().out
    assert [p.name for p in path.parent.iterdir()] == ["seeds.json"]
    assert path.read_text("utf-8") == text
    path.write_text(json.dumps(record | {"settings": {"dataset": "embedded"}}), "utf-8")
    command.refuse_full(path.parent)
