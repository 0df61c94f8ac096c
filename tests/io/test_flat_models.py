"""Forests in skops files are refused for what they are, before anybody is asked to trust them."""

import numpy as np
import pytest

import credibly as cr

skops = pytest.importorskip("skops.io")

from sklearn.ensemble import BaggingClassifier, RandomForestClassifier  # noqa: E402  # where skops is, it is, too
from sklearn.feature_selection import SelectFromModel  # noqa: E402
from sklearn.linear_model import LogisticRegression  # noqa: E402
from sklearn.model_selection import GridSearchCV  # noqa: E402
from sklearn.pipeline import make_pipeline  # noqa: E402
from sklearn.preprocessing import StandardScaler  # noqa: E402

X = np.random.default_rng(0).normal(size=(40, 3))
Y = (X[:, 0] > 0).astype(int)


def forest():
    return RandomForestClassifier(2, random_state=0)


@pytest.mark.parametrize(
    "model",
    [
        forest(),
        make_pipeline(StandardScaler(), forest()),
        GridSearchCV(make_pipeline(StandardScaler(), forest()), {}, cv=2),
    ],
)
def test_a_forest_is_refused_first(tmp_path, model):
    skops.dump(model.fit(X, Y), tmp_path / "m.skops")
    assert skops.get_untrusted_types(file=tmp_path / "m.skops")  # else nobody would be asked
    with pytest.raises(
        cr.errors.ModelError, match="RandomForestClassifier: it is piecewise constant"
    ):
        cr.load_classifier(tmp_path / "m.skops")


def test_of_bagged_models_only_trees_are_called_flat(tmp_path):
    skops.dump(BaggingClassifier(n_estimators=2).fit(X, Y), tmp_path / "trees.skops")
    with pytest.raises(cr.errors.ModelError, match="DecisionTreeClassifier: it is piecewise"):
        cr.load_classifier(tmp_path / "trees.skops")
    skops.dump(BaggingClassifier(LogisticRegression(), 2).fit(X, Y), tmp_path / "lines.skops")
    with pytest.raises(cr.errors.ModelError, match="BaggingClassifier: it has no twin"):
        cr.load_classifier(tmp_path / "lines.skops")


def test_a_forest_that_only_chooses_features_may_be_trusted(tmp_path):
    model = make_pipeline(SelectFromModel(forest()), LogisticRegression()).fit(X, Y)
    path = tmp_path / "m.skops"
    skops.dump(model, path)
    with pytest.raises(cr.errors.FileFormatError, match=r"--trust sklearn\.tree"):
        cr.load_classifier(path)
    loaded = cr.load_classifier(path, trusted=skops.get_untrusted_types(file=path))
    fit = cr.credibility(loaded.classifier, X, gamma=1.0).credence.numpy()
    np.testing.assert_allclose(fit, model.predict_log_proba(X), rtol=1e-9, atol=1e-12)
