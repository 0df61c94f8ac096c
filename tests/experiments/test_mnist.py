import gzip
import hashlib
import struct

import numpy as np
import pytest

import credibly as cr
from experiments import mnist


def idx(array):
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, 8, array.ndim]) + shape + array.tobytes()


@pytest.fixture
def arrays(monkeypatch):
    random = np.random.default_rng(0)
    found = {
        "images": random.integers(0, 256, (3, 28, 28), dtype=np.uint8),
        "labels": np.array([7, 2, 1], np.uint8),
    }
    sums = {name: hashlib.sha256(a.tobytes()).hexdigest() for name, a in found.items()}
    monkeypatch.setattr(mnist, "SHA256", sums)
    return found


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("inside", ["", "data"])
def test_files_and_package_give_the_same_arrays(arrays, tmp_path, zipped, inside):
    (tmp_path / inside).mkdir(exist_ok=True)
    for what, array in arrays.items():
        content = gzip.compress(idx(array)) if zipped else idx(array)
        name = mnist.FILES[what] + (".gz" if zipped else "")
        (tmp_path / inside / name).write_bytes(content)
    split = mnist.load(tmp_path)
    assert split.pixels.shape == (3, 1, 28, 28)
    assert np.array_equal(split.as_bytes().pixels[:, 0].numpy(), arrays["images"])
    assert split.labels.tolist() == [7, 2, 1]


@pytest.mark.parametrize("what", ["images", "labels"])
def test_other_bytes_are_refused(arrays, tmp_path, what):
    for name, array in arrays.items():
        wrong = array.copy()
        if name == what:
            wrong.flat[-1] ^= 1
        (tmp_path / mnist.FILES[name]).write_bytes(idx(wrong))
    with pytest.raises(cr.errors.FileFormatError, match=f"not the test {what} of MNIST"):
        mnist.load(tmp_path)


def test_the_published_content_is_not_what_is_made_up(arrays, tmp_path, monkeypatch):
    for name, array in arrays.items():
        (tmp_path / mnist.FILES[name]).write_bytes(idx(array))
    monkeypatch.undo()
    with pytest.raises(cr.errors.FileFormatError, match="not the test images of MNIST"):
        mnist.load(tmp_path)


def test_an_empty_folder_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="neither t10k-images"):
        mnist.load(tmp_path)
