"""Parts of a study as they are on disk, and what counts as right."""

import math

import pytest
import torch
from safetensors.torch import save_file

import credibly as cr
from credibly.study.rows import Rows, read_rows, read_study, slug

MARKS = {
    "format": "credibly.study", "format_version": "1", "set": "Noise, a 0.1", "kind": "shifted",
    "facts": '{"gamma": 30.0, "samples": 3.0}',
}  # fmt: skip
TENSORS = {
    "labels": torch.tensor([0, 1, -1]),
    "predicted": torch.tensor([0, 2, -1]),
    "credible": torch.tensor([1, 1, -1]),
    "score.ratio": torch.tensor([0.5, math.nan, 0.25], dtype=torch.float64),
}


def stored(folder, drop=(), tensors=None, **marks):
    path = folder / "part.safetensors"
    every = {**TENSORS, **(tensors or {})}
    kept = {name: values for name, values in every.items() if name not in drop}
    save_file(kept, path, metadata={**MARKS, **marks})
    return path


def test_a_stored_part_is_read(tmp_path):
    path = stored(tmp_path)
    assert list(read_study(tmp_path)) == ["Noise, a 0.1"]
    found = read_rows(path)
    assert found.kind == "shifted"
    assert found.labels.tolist() == [0, 1, -1]
    assert found.predicted.tolist() == [0, 2, -1]
    assert found.credible.tolist() == [1, 1, -1]
    assert list(found.scores) == ["ratio"]
    assert torch.equal(
        found.scores["ratio"].nan_to_num(9.0), torch.tensor([0.5, 9.0, 0.25]).double()
    )
    assert found.facts == {"gamma": 30.0, "samples": 3.0}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"format": "credibly.profile"}, "not a 'credibly.study' file"),
        ({"format_version": "2"}, "format version '2'.*newer"),
        ({"facts": "{"}, "cannot be read"),
        ({"drop": ["credible"]}, "cannot be read.*credible"),
        ({"kind": "odd"}, "expected a kind of sets"),
        ({"facts": "[1, 2]"}, "numbers as facts"),
        ({"facts": "null"}, "numbers as facts"),
        ({"facts": '{"gamma": "x"}'}, "numbers as facts"),
        ({"tensors": {"labels": torch.tensor([0, 1])}}, "expected one whole number for each of 2"),
        ({"tensors": {"labels": torch.tensor(1)}}, "'labels' has shape"),
        ({"tensors": {"predicted": torch.zeros(3)}}, "'predicted' has shape .* of torch.float32"),
        ({"tensors": {"score.ratio": torch.zeros(3, 1)}}, "'score.ratio' has shape"),
        ({"tensors": {"score.ratio": torch.zeros(3).long()}}, "'score.ratio' has shape"),
    ],
)
def test_other_parts_are_refused_by_name(tmp_path, damage, words):
    path = stored(tmp_path, **damage)
    for read in (lambda: read_rows(path), lambda: read_study(tmp_path)):
        with pytest.raises(cr.errors.FileFormatError, match=words) as caught:
            read()
        assert "part.safetensors" in str(caught.value)


def test_what_has_no_class_is_never_right():
    rows = Rows("ordinary", *(TENSORS[k] for k in ("labels", "predicted", "credible")), {}, {})
    assert rows.correct.tolist() == [True, False, False]
    assert rows.credible_correct.tolist() == [False, True, False]


def test_complete_rows_have_every_score_that_is_a_number_anywhere():
    nan = math.nan
    scores = {
        "whole": torch.tensor([1.0, 2.0, 3.0]),
        "holes": torch.tensor([1.0, nan, 3.0]),
        "others": torch.tensor([nan, 2.0, 3.0]),
        "nothing": torch.tensor([nan, nan, nan]),
    }
    rows = Rows("ordinary", *(TENSORS[k] for k in ("labels", "predicted", "credible")), scores, {})
    known, good = rows.complete()
    assert list(known) == ["whole", "holes", "others"]
    assert good.tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("name", "file"),
    [("Noise, a 0.1", "noise-a-0.1"), ("--PGD 8/255--", "pgd-8-255"), ("clean", "clean")],
)
def test_names_of_sets_as_names_of_files(name, file):
    assert slug(name) == file
