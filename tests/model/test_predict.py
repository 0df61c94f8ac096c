"""`Classifier.predict`: the classes of one logit and of several, by any loss."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

import credibly as cr


@pytest.mark.parametrize("load", [load_breast_cancer, load_iris])
@pytest.mark.parametrize("model", [LogisticRegression(), SVC(), LinearSVC(dual=False)], ids=str)
def test_a_twin_predicts_as_its_model_does(load, model):
    x, y = load(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    fitted = make_pipeline(StandardScaler(), model).fit(x, y)
    clf = cr.from_sklearn(fitted)
    found = clf.predict(torch.from_numpy(x))
    agrees = found.numpy() == fitted.predict(x)
    assert agrees.mean() > 0.99  # of several classes an SVC counts votes
    assert agrees.all() or (isinstance(model, SVC) and len(clf.classes) == 3)
    if len(clf.classes) == 2:
        assert not bool(clf.logits(torch.from_numpy(x)).argmax(1).any())  # what was documented
        assert set(found.tolist()) == {0, 1}


@pytest.mark.parametrize("outputs", [(-1,), (-1, 1)])
def test_one_probability_is_compared_with_a_half(outputs):
    clf = cr.Classifier(lambda p: p.reshape(outputs), outputs="probabilities")
    assert clf.predict(torch.tensor([[0.2], [0.7], [0.5001]])).tolist() == [0, 1, 1]


def test_ties_of_a_hinge_go_to_the_largest_output():
    clf = cr.Classifier(lambda x: x, loss="one_versus_rest_hinge")
    x = torch.tensor([[2.0, 3.0, 0.0], [0.5, 0.1, 0.2], [1.5, 1.2, 9.0]])
    assert clf.predict(x).tolist() == [1, 0, 2]


def test_a_loss_of_its_own_decides_and_nan_is_no_class():
    distances = cr.losses.CustomLoss(lambda z: z.square())
    clf = cr.Classifier(lambda x: x, loss=distances)
    x = torch.tensor([[3.0, 1.0], [0.5, 2.0], [np.nan, 1.0]])
    assert clf.predict(x).tolist() == [1, 0, -1]
    assert not clf.predict(x.requires_grad_()).requires_grad
