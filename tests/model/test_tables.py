"""Tables for networks whose space names the columns: found by name, or refused with the reason."""

import numpy as np
import pandas as pd
import pytest
import torch

import credibly as cr
from credibly.model.batches import column_names

TABLE = pd.DataFrame(
    np.random.default_rng(0).normal(size=(12, 4)) * [1.0, 10.0, 0.1, 3.0],
    columns=["age", "weight", "dose", "pulse"],
)
TURNED = TABLE[TABLE.columns[::-1]]


def network(dtype=torch.float64):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8, dtype=dtype), torch.nn.Tanh(), torch.nn.Linear(8, 3, dtype=dtype)
    )


def classifier(**settings):
    return cr.Classifier(network(), space=cr.Space.standardised(TABLE), **settings)


@pytest.mark.parametrize("table", [TABLE, TURNED], ids=["in order", "turned"])
def test_columns_are_found_by_the_names_of_the_space(table):
    clf, x = classifier(), TABLE.to_numpy()
    assert cr.auto_gamma(clf, table) == cr.auto_gamma(clf, x)
    found, expected = (cr.credibility(clf, inputs, gamma=0.5) for inputs in (table, x))
    np.testing.assert_array_equal(found.x0, x)
    np.testing.assert_array_equal(found.credibility, expected.credibility)


def test_a_table_comes_in_the_precision_of_the_model():
    clf = cr.Classifier(network(torch.float32), space=cr.Space(columns=list(TABLE)))
    profile = cr.credibility(clf, TURNED, gamma=1.0)
    assert profile.x0.dtype == torch.float32
    np.testing.assert_array_equal(profile.x0, TABLE.to_numpy(dtype=np.float32))


def test_a_function_takes_the_numbers_as_the_table_has_them():
    net = network()
    clf = cr.Classifier(lambda x: 2 * net(x), space=cr.Space(columns=list(TABLE)))
    np.testing.assert_array_equal(cr.credibility(clf, TURNED, gamma=1.0).x0, TABLE.to_numpy())


@pytest.mark.parametrize("kind", ["float64", "Float64", "object"])
def test_a_row_with_a_gap_or_infinity_gets_a_status_and_harms_no_other(kind):
    holed = TABLE.astype(kind)
    holed.iloc[2, 1] = pd.NA if kind == "Float64" else np.nan
    holed.iloc[5, 0] = np.inf
    statuses = cr.credibility(classifier(), holed, gamma=1.0).status
    bad = [n for n, status in enumerate(statuses) if status == cr.Status.NON_FINITE_INPUT]
    assert bad == [2, 5]


def test_the_mark_for_what_is_missing_is_a_gap_for_twins_and_spaces_too():
    from sklearn.linear_model import LogisticRegression

    holed = TABLE.convert_dtypes()
    holed.iloc[2, 1] = pd.NA
    twin = cr.from_sklearn(LogisticRegression().fit(TABLE, [0, 1] * 6))
    assert cr.credibility(twin, holed, gamma=1.0).status[2] == cr.Status.NON_FINITE_INPUT
    rest = TABLE.drop(index=2).to_numpy()
    np.testing.assert_allclose(cr.Space.standardised(holed).scale, rest.std(0, ddof=1))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (TABLE.assign(id=1.0), r"missing \[\], unknown \['id'\].*clf.space.columns"),
        (TABLE.drop(columns="dose"), r"missing \['dose'\], unknown \[\]"),
        (TABLE.rename(columns={"age": "Age"}), r"missing \['age'\], unknown \['Age'\]"),
        (pd.concat([TABLE, TABLE[["age"]]], axis=1), "twice"),
        (TABLE.assign(dose="two"), r"'dose' of type .*Encode"),
    ],
)
def test_a_table_of_other_columns_is_refused(table, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        cr.credibility(classifier(), table, gamma=1.0)


def test_names_of_something_else_than_the_input_are_not_those_of_a_table():
    names = list(TABLE)
    hidden = cr.Classifier(network(), module="0", space=cr.Space(columns=list("abcdefgh")))
    nested = cr.Classifier(network(), space=cr.Space(vary="x", columns=names))
    plain = cr.Classifier(network(), space=cr.Space(scale=2.0))
    assert [column_names(clf) for clf in (hidden, nested, plain)] == [None, None, None]
    assert column_names(cr.Classifier(network(), space=cr.Space(columns=names))) == tuple(names)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"DataFrame.*Space\(columns=names\)"):
        cr.credibility(plain, TABLE, gamma=1.0)


def test_a_preprocess_keeps_the_names_of_the_space():
    clf = classifier(preprocess=lambda x: x / 2)
    np.testing.assert_array_equal(cr.credibility(clf, TURNED, gamma=1.0).x0, TABLE.to_numpy())


@pytest.mark.parametrize("values", [pd.date_range("2020-01-01", periods=4), [1j, 2, 3, 4]])
def test_times_and_complex_numbers_are_no_numbers_of_a_table(values):
    table = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": values})
    with pytest.raises(cr.errors.InvalidArgumentError):
        cr.Space.standardised(table)


def test_a_function_in_single_precision_takes_a_table_of_it():
    clf = cr.Classifier(lambda x: 3 * x @ torch.eye(3), space=cr.Space(columns=["a", "b", "c"]))
    table = pd.DataFrame(np.eye(3, dtype=np.float32), columns=["c", "a", "b"])
    found = cr.credibility(clf, table, gamma=5.0)
    assert found.x0.dtype == torch.float32
    assert found.x0[0].tolist() == [0.0, 0.0, 1.0]
