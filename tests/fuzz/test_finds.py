"""What the harness found, each as a test of its own; the names are those of the cases."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

import credibly as cr
from credibly._validation import positive, real_number
from tests.reference import models


def test_files_1_22849_a_whole_number_that_no_float_holds():
    assert real_number(10**400) == math.inf
    with pytest.raises(cr.errors.InvalidArgumentError, match="`x`"):
        positive("x", 10**400)


def test_files_1_15717_names_of_classes_that_are_not_text(tmp_path):
    clf = cr.Classifier(models.smooth_network())
    profile = cr.credibility(clf, models.inputs(2), gamma=9.0, solver=cr.solvers.LBFGS(steps=2))
    path = tmp_path / "profile.safetensors"
    profile.save(path)
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        marks = dict(file.metadata())
    settings = json.loads(marks["settings"])
    settings["classes"] = ["\ud800", "b", "c", "d", "e"]
    marks["settings"] = json.dumps(settings)
    save_file(load_file(path), path, metadata=marks)
    with pytest.raises(cr.errors.FileFormatError, match=r"profile\.safetensors"):
        cr.Profile.load(path)


def test_files_1_12995_a_fitted_model_that_lost_a_part(tmp_path):
    skops = pytest.importorskip("skops.io")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    x = models.inputs(40, 3).numpy()
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, x[:, 0] > 0)
    model[-1].coef_ = model[-1].coef_[:, :2]  # does not go with three columns
    skops.dump(model, tmp_path / "model.skops")
    with pytest.raises(cr.errors.CrediblyError, match=r"model\.skops|features|coef"):
        cr.load_classifier(tmp_path / "model.skops")


def test_samples_0_65_no_nan_in_a_certificate_without_a_status():
    space = cr.Space(scale=torch.full((8,), 1e-3), bounds=(-math.inf, math.inf))
    clf = cr.Classifier(models.relu_network().float(), space=space)
    x = models.inputs(4).float()
    x[1] = 1e30
    profile = cr.credibility(clf, x, gamma=9.0, solver=cr.solvers.LBFGS(steps=3))
    for name in ("objective", "feasibility", "slackness", "decrease", "stationarity"):
        values = getattr(profile.certificate, name)
        assert bool(values[profile.usable].isfinite().all()), name


def test_guided_safetensors_8e3fc5dd_a_type_that_nobody_knows(tmp_path):
    """Without a known width, no shape is too large for the file, and its rows cannot be counted."""
    fields = {"dtype": "F28", "data_offsets": [0, 736], "shape": [2**63, 4, 23]}
    text = json.dumps({"x": fields}).encode()
    path = tmp_path / "x.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(736))
    with pytest.raises(cr.errors.FileFormatError, match=r"x\.safetensors.*F28"):
        cr.open_source(path)
