import json
import math
from dataclasses import asdict, fields, replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import credibly as cr
from tests.reference import models

NAMES = ("ant", "bee", "cat", "dog", "elk")
CERTIFICATE = (
    "objective", "stationarity", "relative_stationarity", "fixed_point", "feasibility", "slackness",
    "decrease", "tradeoff", "hull",
)  # fmt: skip


@pytest.fixture(scope="module")
def profile():
    x0 = models.inputs(6)
    x0[4, 2] = math.nan
    return cr.credibility(cr.Classifier(models.smooth_network(), classes=NAMES), x0, gamma=30.0)


def same(left, right):
    return torch.equal(left.nan_to_num(7.0), right.nan_to_num(7.0))


def test_slices_and_their_concatenation_are_the_whole(profile):
    parts = [profile[:2], profile[2], profile[[3, 4]], profile[torch.tensor([5])]]
    joined = cr.Profile.concatenate(parts)
    assert len(joined) == len(profile) == 6
    assert [len(part) for part in parts] == [2, 1, 2, 1]
    for name in ("credibility", "credence", "risk", "perturbed", "multipliers", "passes"):
        assert same(getattr(joined, name), getattr(profile, name))
    assert joined.status == profile.status
    assert same(joined.certificate.objective, profile.certificate.objective)
    assert same(profile[profile.usable].risk, profile.risk[torch.tensor([0, 1, 2, 3, 5])])
    assert same(profile[-1].risk, profile.risk[5:])


def test_numpy_numbers_masks_and_empty_lists_choose_rows(profile):
    assert same(profile[np.int64(1)].risk, profile.risk[1:2])
    assert same(profile[[True, False, True, False, False, False]].risk, profile.risk[[0, 2]])
    assert len(profile[[]]) == 0


def test_a_number_that_torch_or_numpy_found_is_a_row(profile):
    worst = profile.risk.nan_to_num(-1.0).argmax()
    for row in (worst, worst.numpy(), torch.tensor(-1)):
        assert len(profile[row]) == 1
        assert same(profile[row].credibility, profile.credibility[int(row)][None])
    with pytest.raises(IndexError, match="index 6 is out of bounds"):
        profile[torch.tensor(6)]


def test_a_row_that_is_not_there_is_an_index_error(profile):
    with pytest.raises(IndexError, match="index 6 is out of bounds"):
        profile[6]


def test_slices_may_go_backwards(profile):
    for rows in (slice(None, None, -1), slice(4, 0, -2), slice(-1, -9, -1)):
        expected = list(range(6))[rows]
        assert same(profile[rows].risk, profile.risk[expected])
        assert same(profile[rows].certificate.objective, profile.certificate.objective[expected])


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint64", "int64"])
def test_whole_numbers_of_every_size_are_rows_and_no_mask(profile, kind):
    rows = [5, 0, 1, 1, 0, 2]  # as many as the profile has
    assert same(profile[np.array(rows, dtype=kind)].risk, profile.risk[rows])
    tensor = torch.tensor(rows, dtype=getattr(torch, kind))
    assert same(profile[tensor].risk, profile.risk[rows])


@pytest.mark.parametrize(
    "rows", [torch.tensor([[0, 1]]), torch.tensor(True), [[0], [1]], [0.7, 1.2], torch.ones(6)]
)
def test_what_is_no_list_of_samples_chooses_none(profile, rows):
    with pytest.raises(IndexError):
        profile[rows]


def test_profiles_of_other_settings_are_not_joined(profile):
    other = cr.credibility(cr.Classifier(models.smooth_network()), models.inputs(), gamma=31.0)
    with pytest.raises(cr.errors.InvalidArgumentError, match="same settings"):
        cr.Profile.concatenate([profile, other])
    with pytest.raises(cr.errors.InvalidArgumentError, match="at least one"):
        cr.Profile.concatenate([])


def test_what_is_saved_is_what_is_loaded(profile, tmp_path):
    path = tmp_path / "profile.safetensors"
    profile.save(path)
    again = cr.Profile.load(path)
    for name in (
        "credibility",
        "credence",
        "risk",
        "x0",
        "perturbed",
        "multipliers",
        "steps",
        "passes",
    ):
        assert same(getattr(again, name), getattr(profile, name))
    for field in fields(cr.Certificate):
        name = field.name
        assert same(getattr(again.certificate, name), getattr(profile.certificate, name))
    assert again.codes.dtype == profile.codes.dtype
    assert again.status == profile.status
    assert again.settings == profile.settings
    assert again.gamma == 30.0
    assert "Hybrid" in again.settings.solver


def test_the_file_has_the_names_that_other_programs_look_for(profile, tmp_path):
    path = tmp_path / "profile.safetensors"
    profile.save(path)
    tensors = load_file(path)
    plain = {"credibility", "credence", "risk", "x0", "perturbed", "multipliers", "steps", "passes"}
    assert set(tensors) == plain | {"codes"} | {f"certificate.{name}" for name in CERTIFICATE}
    assert same(tensors["credence"], profile.credence)
    assert same(tensors["certificate.decrease"], profile.certificate.decrease)
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert (metadata["format"], metadata["format_version"]) == ("credibly.profile", "1")
    assert json.loads(metadata["settings"])["weights"] == [30.0] * 5
    assert json.loads(metadata["settings"])["classes"] == list(NAMES)


def tampered(profile, tmp_path, *, drop=None, change=None, metadata=None):
    path = tmp_path / "file.safetensors"
    profile.save(path)
    tensors = load_file(path)
    good = {
        "format": "credibly.profile",
        "format_version": "1",
        "settings": json.dumps(asdict(profile.settings)),
    }
    if drop:
        tensors.pop(drop)
    tensors |= change or {}
    save_file(tensors, path, metadata=good | (metadata or {}))
    return path


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"drop": "risk"}, "risk"),
        ({"change": {"risk": torch.zeros(5)}}, "risk has shape"),
        ({"change": {"credibility": torch.zeros(6, 4)}}, "credibility has shape"),
        ({"change": {"codes": torch.full((6,), 99, dtype=torch.int8)}}, "status codes"),
        ({"metadata": {"format": "other"}}, "not a 'credibly.profile' file"),
        ({"metadata": {"format_version": "999"}}, "newer"),
        ({"metadata": {"settings": "not json"}}, "settings cannot be read"),
        ({"metadata": {"settings": "[]"}}, "settings cannot be read"),
        ({"metadata": {"settings": '{"weights": 3}'}}, "settings cannot be read"),
    ],
)
def test_damaged_files_are_refused_with_their_name(profile, tmp_path, damage, message):
    path = tampered(profile, tmp_path, **damage)
    with pytest.raises(cr.errors.FileFormatError, match=message) as caught:
        cr.Profile.load(path)
    assert str(path) in str(caught.value)


def test_an_undamaged_rewrite_is_accepted(profile, tmp_path):
    assert len(cr.Profile.load(tampered(profile, tmp_path))) == 6


def test_files_that_are_something_else_are_refused(tmp_path):
    for content in (b"", b"hello", b"\x80\x04" * 100, b"\xff" * 64):
        path = tmp_path / "x.safetensors"
        path.write_bytes(content)
        with pytest.raises(cr.errors.FileFormatError, match=r"x\.safetensors"):
            cr.Profile.load(path)
    with pytest.raises(
        cr.errors.FileFormatError, match=r"missing\.\w+: cannot be read \(No such file"
    ):
        cr.Profile.load(tmp_path / "missing.safetensors")
    with pytest.raises(cr.errors.FileFormatError, match="a folder"):
        cr.Profile.load(tmp_path)


def test_a_folder_that_is_missing_is_named(profile, tmp_path):
    with pytest.raises(cr.errors.OutputError, match=r"does not exist\. Make it first"):
        profile.save(tmp_path / "no" / "file.safetensors")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("new.parquet", "profile.to_parquet("),
        ("new.csv", "profile.to_pandas()"),
        ("new.CSV", "'new.safetensors'"),
        ("new.npz", "'new.safetensors'"),
        ("new.pt", "'new.safetensors'"),
    ],
)
def test_names_of_other_formats_are_not_written(profile, tmp_path, name, remedy):
    with pytest.raises(cr.errors.InvalidArgumentError, match="name of another format") as caught:
        profile.save(tmp_path / name)
    assert remedy in caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_parquet_is_not_written_under_other_names(profile, tmp_path):
    with pytest.raises(cr.errors.InvalidArgumentError, match="name of another format") as caught:
        profile.to_parquet(tmp_path / "new.safetensors")
    assert "profile.save(" in caught.value.remedy
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(cr.errors.OutputError, match=r"does not exist\. Make it first"):
        profile.to_parquet(tmp_path / "no" / "file.parquet")


@pytest.mark.parametrize("name", ["profile", "profile.v2", "new.safetensors", "new.SafeTensors"])
def test_names_of_their_own_are_written(profile, tmp_path, name):
    profile.save(tmp_path / name)
    assert len(cr.Profile.load(tmp_path / name)) == 6


def test_load_says_what_it_reads_when_the_file_is_another(profile, tmp_path):
    np.savez(tmp_path / "digits.npz", x=np.zeros(3))
    (tmp_path / "rule.json").write_text("{}")
    for name in ("digits.npz", "rule.json"):
        message = rf"{name}.*not a readable safetensors.*what Profile\.save wrote"
        with pytest.raises(cr.errors.FileFormatError, match=message):
            cr.Profile.load(tmp_path / name)
    profile.to_parquet(tmp_path / "new.parquet")
    with pytest.raises(cr.errors.FileFormatError, match=r"new\.parquet.*Profile\.from_parquet"):
        cr.Profile.load(tmp_path / "new.parquet")


def test_the_table_has_one_row_a_sample(profile):
    frame = profile.to_pandas()
    assert len(frame) == 6
    assert frame["status"].tolist()[4] == "non finite input"
    assert frame.loc[4, ["predicted", "most_credible"]].isna().all()
    assert frame["predicted"][0] == NAMES[int(profile.credence[0].argmax())]
    assert frame["most_credible"][1] == NAMES[int(profile.ranking()[1, 0])]
    assert frame["credibility.bee"][0] == pytest.approx(float(profile.credibility[0, 1]))


def test_the_model_has_a_class_also_where_nothing_was_searched_for(profile):
    codes = profile.codes.clone()
    codes[0] = int(cr.Status.NO_GRADIENT)  # x0 itself was returned
    frame = replace(profile, codes=codes).to_pandas()
    assert frame["status"][0] == cr.Status.NO_GRADIENT.label
    assert frame["predicted"][0] == NAMES[int(profile.credence[0].argmax())]
    assert frame["predicted"].isna().tolist() == [False] * 4 + [True, False]


def test_numbers_in_any_order_of_memory_are_saved(profile, tmp_path):
    turned = replace(profile, credibility=profile.credibility.T.contiguous().T)
    assert not turned.credibility.is_contiguous()
    turned.save(tmp_path / "profile.safetensors")
    again = cr.Profile.load(tmp_path / "profile.safetensors")
    assert same(again.credibility, profile.credibility)


def test_every_column_of_the_table_is_its_number(profile):
    frame = profile.to_pandas()
    expected = {"risk": profile.risk, "passes": profile.passes}
    for k, name in enumerate(NAMES):
        expected[f"credibility.{name}"] = profile.credibility[:, k]
        expected[f"credence.{name}"] = profile.credence[:, k]
    for name in ("objective", "relative_stationarity", "decrease"):
        expected[f"certificate.{name}"] = getattr(profile.certificate, name)
    assert set(frame) == {*expected, "predicted", "most_credible", "status"}
    for name, values in expected.items():
        assert np.array_equal(frame[name].to_numpy(), values.numpy(), equal_nan=True), name
    for n, status in enumerate(profile.status):
        assert frame["status"][n] == status.label


def test_the_parquet_file_holds_the_table_and_the_settings(profile, tmp_path):
    path = tmp_path / "profile.parquet"
    profile.to_parquet(path)
    assert pd.read_parquet(path).equals(profile.to_pandas())
    settings = json.loads(pq.read_schema(path).metadata[b"settings"])
    assert settings["weights"] == [30.0] * 5


def test_words_say_what_happened(profile):
    assert repr(profile) == "Profile(6 x 5 classes, gamma 30; 5 converged, 1 non finite input)"
    text = profile.summary()
    assert "Clean this sample" in text
    assert "passes per sample" in text


def test_every_status_has_advice():
    assert all(len(status.advice) > 10 for status in cr.Status)
    assert [s.name for s in cr.Status if s.usable] == ["CONVERGED", "STALLED", "STEP_LIMIT"]


@pytest.mark.parametrize("name", ["profiles", "profiles.safetensors"])
def test_a_folder_is_no_file_to_save_to(tmp_path, name):
    profile = cr.credibility(cr.Classifier(models.smooth_network()), models.inputs(2), gamma=30.0)
    folder = tmp_path / name
    folder.mkdir()
    with pytest.raises(
        cr.errors.InvalidArgumentError, match=r"`path`.*a folder.*profile\.safetensors"
    ):
        profile.save(folder)
    assert list(tmp_path.iterdir()) == [folder]
