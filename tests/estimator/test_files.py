"""A fitted estimator in files, and in the place of a classifier."""

import numpy as np
import pytest
import skops.io
import torch
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import credibly as cr

TABLE, Y = load_iris(return_X_y=True, as_frame=True)
X = TABLE.to_numpy()
LABELS = np.array(["setosa", "versicolor", "virginica"])[Y]
QUICK = cr.solvers.LBFGS(steps=10)
OWN_SPACE = cr.Space.standardised(TABLE, bounds=(torch.zeros(4), 9.0))


def fitted(**settings):
    inner = make_pipeline(StandardScaler(), SVC())
    return cr.CredibilityClassifier(inner, **{"solver": QUICK, **settings}).fit(TABLE, LABELS)


SETTINGS = [
    {},
    {"gamma": 2.0, "solver": None, "bounds": (0.0, 9.0)},
    {"space": "standardised"},
    {"space": OWN_SPACE},
    {"loss": cr.losses.Logistic(), "svc_outputs": "mean", "chunk_size": 3},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=[", ".join(s) or "plain" for s in SETTINGS])
@pytest.mark.parametrize("used", [True, False])
def test_skops_stores_the_whole_estimator(settings, used, tmp_path):
    model = fitted(**settings)
    if used:
        model.profile(TABLE[:2])
    path = tmp_path / "m.skops"
    skops.io.dump(model, path)
    trusted = skops.io.get_untrusted_types(file=path)
    assert all(name.startswith("credibly.") for name in trusted)
    again = skops.io.load(path, trusted=trusted)
    assert not any(
        isinstance(value, torch.Tensor | cr.Classifier) for value in vars(again).values()
    )
    one, two = model.profile(TABLE[:7]), again.profile(TABLE[:7])
    assert one.settings == two.settings
    assert torch.equal(one.credibility, two.credibility)
    np.testing.assert_array_equal(again.predict(TABLE), model.predict(TABLE))
    assert again.gamma_ == model.gamma_
    loaded = cr.load_classifier(path)  # types of this package need no trust
    x = torch.tensor(X)
    assert torch.equal(loaded.classifier.logits(x), model.classifier_.logits(x))
    assert f"--gamma {model.gamma_!r}" in loaded.notes[0]
    assert cr.SelectiveClassifier.for_coverage(loaded.classifier, one, 0.5).decide(two)


def test_settings_changed_after_the_fit_do_not_change_what_is_loaded():
    model = fitted()
    before = model.profile(TABLE[:4])
    model.set_params(loss="logistic", svc_outputs="mean", space="standardised")
    content = skops.io.dumps(model)
    again = skops.io.loads(content, trusted=skops.io.get_untrusted_types(data=content))
    assert torch.equal(again.profile(TABLE[:4]).credibility, before.credibility)
    assert again.classifier_ is again.classifier_


def test_a_second_fit_replaces_the_classifier():
    model = fitted()
    first = model.classifier_
    model.fit(TABLE[["sepal length (cm)", "petal width (cm)"]], LABELS)
    assert model.classifier_ is not first
    assert model.classifier_.net.features == 2


def test_an_estimator_is_a_classifier_for_every_function(tmp_path):
    model = fitted(space="standardised")
    clf = model.classifier_
    profile = cr.credibility(model, TABLE[:20], gamma=2.0)
    assert torch.equal(profile.credibility, cr.credibility(clf, TABLE[:20], gamma=2.0).credibility)
    assert cr.certify(model, TABLE[:20], profile.perturbed, gamma=2.0).holds().all()
    assert cr.from_sklearn(model) is clf
    assert cr.theory.check_tradeoff(model, profile).holds().all()
    path = cr.credibility_path(model, X[:3], [4.0, 2.0])
    assert len(path.profiles) == 2
    TABLE.to_csv(tmp_path / "x.csv", index=False)
    report = cr.score(model, tmp_path / "x.csv", tmp_path / "p.parquet", gamma=model.gamma_)
    assert report.rows == len(TABLE)
    study = cr.study.Study(clf=model, gamma=2.0)
    assert study.clf is clf
    assert cr.compare({"one": model, "two": clf}, X[:10], gamma=2.0)


def test_settings_of_an_estimator_are_its_own():
    model = fitted()
    for given in ({"loss": "logistic"}, {"dtype": torch.float32}, {"space": OWN_SPACE}):
        with pytest.raises(cr.errors.ModelError, match=r"its own loss.*model\.estimator_"):
            cr.from_sklearn(model, **given)
    with pytest.raises(cr.errors.ModelError, match="it is not fitted"):
        cr.from_sklearn(cr.CredibilityClassifier(SVC()))


def test_inside_a_search_it_is_found_and_inside_a_pipeline_refused():
    inner = cr.CredibilityClassifier(LogisticRegression(max_iter=500), gamma=1.0)
    search = GridSearchCV(inner, {"estimator__C": [0.1, 1.0]}, cv=2).fit(X, Y)
    assert cr.from_sklearn(search) is search.best_estimator_.classifier_
    pipeline = make_pipeline(StandardScaler(), inner).fit(X, Y)
    with pytest.raises(
        cr.errors.ModelError, match=r"'credibilityclassifier' of the pipeline.*pipeline\[-1\]"
    ):
        cr.from_sklearn(pipeline)
