"""Tables as inputs: twins find columns by the names of the fit, other models refuse tables."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import credibly as cr

TABLE, Y = load_iris(return_X_y=True, as_frame=True)
TABLE = TABLE.iloc[::10].reset_index(drop=True)
FITTED = make_pipeline(StandardScaler(), LogisticRegression()).fit(TABLE, Y[::10])
REVERSED = TABLE[TABLE.columns[::-1]]


@pytest.mark.parametrize("table", [TABLE, REVERSED], ids=["in order", "reversed"])
@pytest.mark.parametrize("space", [None, cr.Space.standardised(TABLE)], ids=["plain", "space"])
def test_a_twin_takes_a_table_by_the_names_of_its_columns(table, space):
    clf, x = cr.from_sklearn(FITTED, space=space), TABLE.to_numpy()
    assert cr.auto_gamma(clf, table) == cr.auto_gamma(clf, x)
    found, expected = (cr.credibility(clf, inputs, gamma=0.5) for inputs in (table, x))
    np.testing.assert_array_equal(found.x0, x)
    torch.testing.assert_close(found.credibility, expected.credibility, rtol=0, atol=0)
    np.testing.assert_allclose(found.credence, FITTED.predict_log_proba(TABLE), atol=1e-9)


def test_a_twin_of_an_array_takes_columns_by_position():
    clf = cr.from_sklearn(LogisticRegression().fit(TABLE.to_numpy(), Y[::10]))
    np.testing.assert_array_equal(cr.credibility(clf, REVERSED, gamma=1.0).x0, REVERSED.to_numpy())


def test_a_missing_value_gets_a_status_and_does_not_affect_other_rows():
    holed = TABLE.copy()
    holed.iloc[2, 1] = np.nan
    statuses = cr.credibility(cr.from_sklearn(FITTED), holed, gamma=1.0).status
    assert [n for n, status in enumerate(statuses) if status == cr.Status.NON_FINITE_INPUT] == [2]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (TABLE.assign(extra=1.0), "also .'extra'."),
        (TABLE.drop(columns=TABLE.columns[1]), f"missing .'{TABLE.columns[1]}'."),
        (TABLE.assign(**{TABLE.columns[0]: "text"}), "of type object"),
    ],
)
def test_a_table_of_other_columns_is_refused(table, words):
    with pytest.raises(
        cr.errors.InvalidArgumentError, match=words.replace("(", r"\(").replace(")", r"\)")
    ):
        cr.credibility(cr.from_sklearn(FITTED), table, gamma=1.0)


def test_models_without_column_names_refuse_tables():
    net = torch.nn.Linear(4, 3, dtype=torch.float64)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"DataFrame.*to_numpy"):
        cr.credibility(cr.Classifier(net), TABLE, gamma=1.0)
    twin = cr.from_sklearn(FITTED).net
    prepared = cr.Classifier(
        twin, preprocess=lambda x: x / 2
    )  # the names are those after preprocessing
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"DataFrame.*to_numpy"):
        cr.credibility(prepared, TABLE, gamma=1.0)


def test_a_space_of_a_table_has_its_standard_deviations_and_names():
    table = TABLE.assign(same=3.0)
    space = cr.Space.standardised(table, locked=[TABLE.columns[2]])
    scale = space.scale_of("", (5,))
    free = [0, 1, 3]
    np.testing.assert_allclose(scale[free], TABLE.to_numpy()[:, free].std(0, ddof=1))
    assert space.locked_mask("", (5,)).tolist() == [False, False, True, False, True]
    assert list(space.columns) == list(table.columns)
    assert list(cr.Space.standardised(table, columns=list("abcde")).columns) == list("abcde")
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"DataFrame.*table of numbers only"):
        cr.Space.standardised(table.assign(words="a"))


def test_a_space_of_columns_in_another_order_is_refused():
    with pytest.raises(cr.errors.InvalidArgumentError, match="another order"):
        cr.from_sklearn(FITTED, space=cr.Space.standardised(REVERSED))
    own = cr.Space.standardised(pd.DataFrame(TABLE.to_numpy(), columns=list("abcd")))
    assert cr.from_sklearn(FITTED, space=own).space is own


def test_a_space_with_some_unknown_columns_is_refused():
    names = [*TABLE.columns[[2, 1]], "x", "y"]
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"unknown .'x', 'y'."):
        cr.from_sklearn(FITTED, space=cr.Space(columns=names, locked=names[:1]))
