"""Files of profiles of the most probable classes, and the commands that write and read them."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from typer.testing import CliRunner

import credibly as cr
from credibly.cli.app import app
from credibly.decide import scores
from tests.reference import models

CLASSES = 12
NET = models.smooth_network(classes=CLASSES, seed=4)
NAMES = [f"kind {k}" for k in range(CLASSES)]
X = 2 * models.inputs(40)
X[3] = torch.nan
QUICK = {"gamma": 2.0, "solver": cr.solvers.LBFGS(steps=4)}


@pytest.fixture(scope="module", params=[None, NAMES], ids=["numbers", "names"])
def profile(request):
    return cr.credibility(cr.Classifier(NET, classes=request.param), X, top=3, **QUICK)


def same(one, other):
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def test_everything_comes_back_from_a_file(profile, tmp_path):
    profile.save(tmp_path / "profile")
    again = cr.Profile.load(tmp_path / "profile")
    assert torch.equal(again.kept, profile.kept)
    assert again.settings == profile.settings
    assert (again.settings.top, again.settings.class_count) == (3, CLASSES)
    for name in ("credibility", "credence", "risk", "x0", "perturbed"):
        assert same(getattr(again, name), getattr(profile, name))


def test_everything_that_decides_comes_back_from_a_table(profile, tmp_path):
    profile.to_parquet(tmp_path / "profile.parquet")
    again = cr.Profile.from_parquet(tmp_path / "profile.parquet")
    assert torch.equal(again.kept, profile.kept)
    assert again.settings == profile.settings
    assert torch.equal(again.predicted, profile.predicted)
    for name, score in scores.SCORES.items():
        assert same(score(again), score(profile)), name


def test_the_table_says_what_its_columns_are_about(profile):
    frame = profile.to_pandas()
    wide = [f"{kind}.{rank}" for kind in ("credibility", "credence")
            for rank in ("top1", "top2", "top3", "others")]  # fmt: skip
    assert [name for name in frame if name.startswith("cred")] == wide
    row = frame.iloc[5]
    named = profile.settings.classes or [str(k) for k in range(CLASSES)]
    order = (-NET(X[5:6])[0].detach()).argsort()[:3].tolist()
    assert [row[f"class.top{k}"] for k in (1, 2, 3)] == [named[k] for k in order]
    assert row["predicted"] == named[order[0]]
    ahead = int(profile.credibility[5].argmax())
    assert row["most_credible"] == ("(others)" if ahead == 3 else named[order[ahead]])
    assert frame.iloc[3][["predicted", "most_credible", "class.top1"]].isna().all()


def test_parts_are_chosen_and_joined_with_their_classes(profile):
    again = cr.Profile.concatenate([profile[:2], profile[[2, 3]], profile[4:]])
    assert torch.equal(again.kept, profile.kept)
    other = cr.credibility(cr.Classifier(NET), X, top=2, **QUICK)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"top 3 of 12 classes.*top 2 of 12"):
        cr.Profile.concatenate([profile, other])


def changed(path, out, *, settings=None, **tensors):
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        own = {name: file.get_tensor(name) for name in file.keys()} | tensors  # noqa: SIM118
    if settings:
        metadata["settings"] = json.dumps(json.loads(metadata["settings"]) | settings)
    save_file({name: value for name, value in own.items() if value is not None}, out, metadata)
    return out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kept": None}, "tensors .'kept'. are missing"),
        ({"kept": torch.zeros(40, 2, dtype=torch.long)}, "kept has shape"),
        ({"kept": torch.zeros(40, 3)}, "not numbers of classes"),
        ({"kept": torch.full((40, 3), CLASSES)}, "not numbers of classes"),
        ({"kept": torch.zeros(40, 3, dtype=torch.long)}, "not numbers of classes"),
        ({"settings": {"top": 2}}, "4 weights for the top 2 of 12 classes"),
        ({"settings": {"top": None}}, "top None of 12 classes"),
        ({"settings": {"class_count": 3}}, "4 weights for the top 3 of 3 classes"),
        ({"settings": {"class_count": 10**30}}, "settings cannot be read"),
        ({"settings": {"top": True}}, "settings cannot be read"),
        ({"settings": {"classes": ["a"] * 4}}, "4 names of classes for 12 classes"),
    ],
)
def test_damaged_files_are_told(profile, tmp_path, change, message):
    profile.save(tmp_path / "profile")
    path = changed(tmp_path / "profile", tmp_path / "damaged", **change)
    with pytest.raises(cr.errors.FileFormatError, match=message):
        cr.Profile.load(path)


@pytest.mark.parametrize("name", ["kind 99", "-3", "1.5", "", "kind 3 "])
def test_a_table_of_unknown_classes_is_told(profile, tmp_path, name):
    profile.to_parquet(tmp_path / "profile.parquet")
    table = pq.read_table(tmp_path / "profile.parquet")
    place = table.column_names.index("class.top2")
    column = pa.array([name, *table.column(place).to_pylist()[1:]])
    pq.write_table(table.set_column(place, "class.top2", column), tmp_path / "damaged.parquet")
    with pytest.raises(cr.errors.FileFormatError, match="unknown classes"):
        cr.Profile.from_parquet(tmp_path / "damaged.parquet")


def test_score_writes_the_same_rows_as_credibility(tmp_path):
    clf = cr.Classifier(NET, classes=NAMES)
    np.save(tmp_path / "x.npy", X.numpy())
    settings = {"chunk_size": 16, "shard_size": 16, "top": 3, **QUICK}
    report = cr.score(clf, tmp_path / "x.npy", tmp_path / "out.parquet", **settings)
    found = cr.Profile.from_parquet(report.path)
    expected = cr.credibility(clf, X, top=3, chunk_size=16, **QUICK)
    assert torch.equal(found.kept, expected.kept)
    assert torch.allclose(found.credibility, expected.credibility, atol=1e-9, equal_nan=True)
    assert found.settings == expected.settings
    recorded = json.loads(pq.read_schema(report.path).metadata[b"settings"])
    assert '"top": 3' in json.dumps(recorded)
    auto = cr.score(clf, tmp_path / "x.npy", tmp_path / "auto.parquet", top=3,
                    solver=QUICK["solver"])  # fmt: skip
    assert auto.gamma == cr.auto_gamma(clf, X, top=3)
    with pytest.raises(cr.errors.InvalidArgumentError, match="fewer than the 12 classes"):
        cr.score(clf, tmp_path / "x.npy", tmp_path / "many.parquet", top=12)


def test_the_command_asks_about_the_most_probable_classes_and_rules_apply(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke
    model = "credibly.data.sample:classifier"
    assert run(app, ["sample", "--out", "x.npz", "--images", "30"]).exit_code == 0
    score = ["score", model, "x.npz", "--gamma", "200", "--effort", "0.1", "--out"]
    done = run(app, [*score, "few.parquet", "--top", "4"])
    assert done.exit_code == 0, done.output
    few = cr.Profile.from_parquet("few.parquet")
    assert few.kept.shape == (30, 4)
    clf = cr.load_classifier(model).classifier
    cr.SelectiveClassifier.for_coverage(clf, few, 0.8).save("rule.json")
    done = run(app, ["decide", "few.parquet", "--rule", "rule.json", "--out", "decided.csv"])
    assert done.exit_code == 0, done.output
    decided = pd.read_csv("decided.csv")
    names = [few.class_name(k) for k in few.predicted.tolist()]
    assert decided["predicted"].tolist() == names
    answered = decided["accepted"]
    assert decided["class"][answered].tolist() == decided["predicted"][answered].tolist()
    assert decided["class_number"][answered].tolist() == few.predicted[answered.tolist()].tolist()
