"""Entries of a folder that are no images cost only their own row."""

import os
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image
from torch import nn

import credibly as cr
from credibly.io import pixels

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, pipes and names of POSIX")


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "images"
    path.mkdir()
    for name in ("b.png", "y.png"):
        Image.new("L", (3, 2), 51).save(path / name)
    return path


def dangling(path):
    (path / "d.png").symlink_to(path / "nowhere.png")


def in_a_circle(path):
    (path / "d.png").symlink_to(path / "d.png")


def subfolder(path):
    (path / "d.png").mkdir()


def pipe(path):
    os.mkfifo(path / "d.png")


def closed(path):
    Image.new("L", (3, 2)).save(path / "d.png")
    (path / "d.png").chmod(0)


@pytest.mark.parametrize("make", [dangling, in_a_circle, subfolder, pipe, closed])
def test_an_entry_that_cannot_be_read_is_a_row_of_its_own_status(
    folder, tmp_path, monkeypatch, make
):
    make(folder)
    if make is closed:  # the one who runs the tests may be allowed everything
        deny(monkeypatch, folder / "d.png")
    clf = cr.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(6, 2)).eval())
    report = cr.score(clf, folder, tmp_path / "out.parquet", gamma=1.0)
    frame = pd.read_parquet(tmp_path / "out.parquet")
    assert frame["id"].tolist() == ["b.png", "d.png", "y.png"]
    assert frame["status"].tolist()[1] == "unreadable file"
    assert report.statuses["unreadable file"] == 1
    assert frame["risk"].isna().tolist() == [False, True, False]


def deny(monkeypatch, closed):
    for place in (Path, Image):
        monkeypatch.setattr(place, "open", refusing(place.open, closed))


def refusing(opened, closed):
    def refuse(path, *arguments, **options):
        if path == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    return refuse


def test_a_name_that_is_no_text_is_printed_as_one(folder, tmp_path):
    raw = os.fsencode(folder) + b"/caf\xe9.png"
    try:
        with open(raw, "wb") as file:  # noqa: PTH123  # such a name is no text
            file.write((folder / "b.png").read_bytes())
    except OSError:
        pytest.skip("this file system takes only names that are text")
    ids, x = cr.open_source(folder).read(0, 9)
    assert ids == ["b.png", "caf\\xe9.png", "y.png"]
    assert not bool(x.isnan().any())
    clf = cr.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(6, 2)).eval())
    cr.score(clf, folder, tmp_path / "out.parquet", gamma=1.0)
    assert pd.read_parquet(tmp_path / "out.parquet")["id"].tolist() == ids


def test_a_folder_that_may_not_be_entered_is_no_file(monkeypatch):
    def refuse(_):
        raise PermissionError

    monkeypatch.setattr(Path, "is_file", refuse)
    assert not pixels.is_plain(Path("some.png"))
