"""scikit-learn's own checks of an estimator, without exceptions."""

import warnings

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import credibly as cr


@parametrize_with_checks(
    [
        cr.CredibilityClassifier(LogisticRegression(), solver=cr.solvers.LBFGS(steps=3)),
        cr.CredibilityClassifier(make_pipeline(StandardScaler(), SVC()), gamma=1.0),
    ]
)
def test_scikit_learn_accepts_the_estimator(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the inner model on odd data
        check(estimator)
