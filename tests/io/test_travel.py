"""Sources and errors can be sent to another process, which reads the same rows."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import credibly as cr


def write(path, x):
    if path.suffix == ".npy":
        np.save(path, x)
    elif path.suffix == ".npz":
        np.savez_compressed(path, x=x)
    elif path.suffix == ".safetensors":
        save_file({"x": torch.from_numpy(x)}, path)
    elif path.suffix == ".csv":
        pd.DataFrame(x, columns=list("abc")).to_csv(path, index=False)
    elif path.suffix == ".parquet":
        pd.DataFrame(x, columns=list("abc")).to_parquet(path)
    else:
        path.mkdir()
        for n, row in enumerate(x):
            Image.fromarray(np.uint8(255 * row[None])).save(path / f"{n}.png")
    return path


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "x.safetensors", "x.csv", "x.parquet", "x"])
def test_a_source_travels_while_it_is_read(tmp_path, name):
    path = write(tmp_path / name, np.random.default_rng(0).random((9, 3)))
    source = cr.open_source(path)
    source.read(0, 3)
    other = pickle.loads(pickle.dumps(source))  # noqa: S301
    assert other.describe() == source.describe()
    assert other.stamp() == source.stamp()
    ids, x = other.read(2, 9)
    assert ids == source.read(2, 9)[0]
    assert torch.equal(x, source.read(2, 9)[1])


@pytest.mark.parametrize(
    "error",
    [
        cr.errors.InvalidArgumentError("x", expected="a", got="b", remedy="c"),
        cr.errors.ModelError("it broke", remedy="mend it"),
        cr.errors.WorkerError("it is away", remedy="wait"),
        cr.errors.MissingExtraError(package="ray", extra="ray", purpose="This"),
        cr.errors.FileFormatError("x.npy: damaged."),
    ],
)
def test_an_error_travels_with_all_it_says(error):
    other = pickle.loads(pickle.dumps(error))  # noqa: S301
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert vars(other) == vars(error)
