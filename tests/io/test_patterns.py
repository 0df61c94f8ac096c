"""A pattern means the same files on a disk and in a store; names need not be UTF-8."""

import io
import os
import tarfile

import numpy as np
import pandas as pd
import pytest
import torch

import credibly as cr
from credibly.io.kinds import would_read
from credibly.io.listing import expand, list_folder, root_of

NAMES = [
    "a.npy", "b.csv", ".hidden.npy", "in/a.npy", "in/b1.npy", "in/deep/a.npy", "in/deep/er/c.npy",
    "in/.git/a.npy", "in/x**y.npy", "in/xzy.npy", "ab/cd.npy",
]  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        np.save(tmp_path / "x.npy", np.zeros((2, 3)))
        (tmp_path / "x.npy").rename(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    "pattern",
    ["**", "in/**", "in/deep/**", "**/*.npy", "*/*.npy", "in/**/a.npy", "in/[ab]*.npy", "**/?.npy",
     "in/[!a]*", "in/.git/*", ".*", "a**/*", "in/x**y.npy", "*/**/c.npy", "in/**/**", "nothing/*"],
)  # fmt: skip
def test_an_expression_matches_what_glob_finds(folder, pattern):
    found = sorted(file.name for file in expand(folder / pattern)[1])
    root, fits = root_of(folder / pattern)
    below = [path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()]
    assert sorted(filter(fits.fullmatch, below)) == found
    assert found or pattern == "nothing/*"


@pytest.mark.parametrize(
    ("read", "new", "expected"),
    [
        ("in", "in/out.parquet", True), ("in", "in/deep/out.parquet", True), ("in", "in", False),
        ("in", "in/out.json", False), ("in", "in/_out/part.parquet", False),
        ("in", "inner.parquet", False), ("in", "in/new.npy", False),  # read if a pattern says so
        ("in/*.npy", "in/new.npy", True), ("in/*.npy", "in/new.parquet", False),
        ("in/*.npy", "in/deep/new.npy", False), ("in/**/*.npy", "in/deep/new.npy", True),
        ("a.npy", "a.npy", False), ("nowhere/*.npy", "nowhere/a.npy", True),
    ],
)  # fmt: skip
def test_a_new_file_that_would_be_read_is_told_from_others(folder, read, new, expected):
    assert would_read(folder / read, folder / new) is expected


def test_listing_leaves_hidden_names_out(folder):
    assert ".hidden.npy" not in {file.name for file in list_folder(folder)}


def write_tar(path, names):
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
        for name in names:
            content = io.BytesIO()
            np.save(content, np.ones(3))
            info = tarfile.TarInfo(name)
            info.size = len(content.getvalue())
            content.seek(0)
            archive.addfile(info, content)


@pytest.mark.parametrize("kind", ["npy", "tar"])
def test_names_that_are_not_utf_8_are_read_and_written_in_hex(tmp_path, kind):
    odd, out = os.fsdecode(b"\xff\xfe"), tmp_path / "out.parquet"
    (tmp_path / "in").mkdir()
    if kind == "npy":
        np.save(tmp_path / "in" / f"{odd}.npy", np.ones((2, 3)))
    else:
        write_tar(tmp_path / "in" / f"{odd}.tar", [f"{odd}.npy", "b.npy"])
    clf = cr.Classifier(torch.nn.Linear(3, 2).eval())
    cr.score(clf, tmp_path / "in" / f"*.{kind}", out, gamma=1.0)
    expected = [0, 1] if kind == "npy" else ["\\xff\\xfe", "b"]
    assert pd.read_parquet(out)["id"].tolist() == expected
