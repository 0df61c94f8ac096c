import hashlib
import json
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from experiments import cifar10

BATCHES = [f"data_batch_{n}" for n in range(1, 6)]


@pytest.fixture
def arrays(monkeypatch):
    """Two images a batch, and the checksums they would have."""
    random = np.random.default_rng(0)
    found = {
        "train images": random.integers(0, 256, (10, 32, 32, 3), dtype=np.uint8),
        "train labels": random.integers(0, 10, 10, dtype=np.uint8),
        "test images": random.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8),
        "test labels": random.integers(0, 10, 2, dtype=np.uint8),
    }
    sums = {name: hashlib.sha256(a.tobytes()).hexdigest() for name, a in found.items()}
    monkeypatch.setattr(cifar10, "SHA256", sums)
    return found


def parts(arrays):
    for n, name in enumerate(BATCHES):
        rows = slice(2 * n, 2 * n + 2)
        yield name, arrays["train images"][rows], arrays["train labels"][rows]
    yield "test_batch", arrays["test images"], arrays["test labels"]


def write_binary(folder, arrays):
    for name, images, labels in parts(arrays):
        planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        (folder / f"{name}.bin").write_bytes(np.hstack([labels[:, None], planes]).tobytes())


def write_pictures(folder, arrays):
    for name, images, _ in parts(arrays):
        Image.fromarray(images.reshape(len(images), 1024, 3)).save(folder / f"{name}.png")
    for part in ("train", "test"):
        labels = arrays[f"{part} labels"].tolist()
        (folder / f"{part}_lables.json").write_text(json.dumps(labels))


@pytest.mark.parametrize("write", [write_binary, write_pictures])
@pytest.mark.parametrize("part", ["train", "test"])
def test_both_packages_give_the_same_arrays(arrays, tmp_path, write, part):
    write(tmp_path, arrays)
    split = cifar10.load(tmp_path, part)
    images = torch.from_numpy(arrays[f"{part} images"])
    assert split.pixels.dtype == torch.float32
    assert split.pixels.shape == (len(images), 3, 32, 32)
    assert torch.equal(split.as_bytes().pixels.permute(0, 2, 3, 1), images)
    assert split.labels.tolist() == arrays[f"{part} labels"].tolist()


@pytest.mark.parametrize("write", [write_binary, write_pictures])
def test_an_archive_need_not_be_unpacked(arrays, tmp_path, write):
    loose, packed = tmp_path / "loose", tmp_path / "packed"
    loose.mkdir()
    packed.mkdir()
    write(loose, arrays)
    with tarfile.open(packed / "as-published.tar.gz", "w:gz") as tar:
        tar.add(loose, arcname="some-folder")
    for part in ("train", "test"):
        assert torch.equal(cifar10.load(packed, part).pixels, cifar10.load(loose, part).pixels)
    assert [path.name for path in packed.iterdir()] == ["as-published.tar.gz"]


@pytest.mark.parametrize("write", [write_binary, write_pictures])
@pytest.mark.parametrize("what", ["images", "labels"])
def test_other_bytes_are_refused(arrays, tmp_path, write, what):
    wrong = {name: array.copy() for name, array in arrays.items()}
    wrong[f"test {what}"].flat[-1] ^= 1
    write(tmp_path, wrong)
    cifar10.load(tmp_path, "train")
    with pytest.raises(ValueError, match=f"the test {what} are not those of CIFAR-10"):
        cifar10.load(tmp_path, "test")


def test_the_published_checksums_refuse_what_is_made_up(arrays, tmp_path, monkeypatch):
    write_binary(tmp_path, arrays)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="not those of CIFAR-10"):
        cifar10.load(tmp_path, "train")


def test_an_empty_folder_or_an_unknown_part_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"neither data_batch_1\.bin nor"):
        cifar10.load(tmp_path, "train")
    with pytest.raises(ValueError, match="neither 'train' nor 'test'"):
        cifar10.load(tmp_path, "validation")
