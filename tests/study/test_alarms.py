"""Alarms of Judges and of plain thresholds, at one rate."""

import json

import pytest
import torch
from torch import nn

import credibly as cr
from credibly.cli.evaluation import read_alarms
from credibly.metrics import Interval
from credibly.report.alarms import advice_on_alarms, alarms_figure, alarms_table
from credibly.study import InputSet
from credibly.study.alarms import Alarms, count_alarms, share_with_interval, threshold
from tests.reference import models


def sets(count=240):
    x = models.inputs(count)
    y = torch.zeros(count, dtype=torch.long)
    moved = x.clone()
    moved[::2] = torch.nan  # those set the thresholds, and may not be looked at
    return {
        "ordinary": InputSet(x, y, "ordinary"),
        "shifted": InputSet(moved, y, "shifted"),
        "foreign": InputSet(50 + x[:30], None, "outliers"),
    }


@pytest.fixture(scope="module")
def found():
    return count_alarms(cr.Classifier(models.smooth_network()), sets())


def test_half_of_the_ordinary_inputs_sets_thresholds_and_the_others_are_judged(found):
    assert (found.rate, found.fitted_on) == (0.01, 120)
    assert list(found.shares) == ["ordinary", "shifted", "foreign"]
    assert found.shares["shifted"] == found.shares["ordinary"]  # the same rows
    for share in found.shares["ordinary"].values():
        assert share.low <= 0.01 + 0.05
    assert found.shares["foreign"]["Judge"].value == 1.0
    assert found.passes["Judge, doubtful profiles"] > found.passes["Judge"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(("count", "rate"), [(198, 0.01), (196, 0.05), (38, 0.05), (36, None)])
def test_the_rate_is_what_the_inputs_allow(count, rate):
    found = count_alarms(cr.Classifier(models.smooth_network()), sets(count))
    assert (None if found is None else found.rate) == rate


def test_the_cheapest_of_the_best_is_recommended(found):
    assert found.best() == "Judge"
    assert "cr.Judge.fit(model, ordinary)" in advice_on_alarms(found)[0]

    def alarms(**values):
        shares = {name: Interval(value, 0.0, 1.0) for name, value in values.items()}
        return Alarms(0.01, 100, {"ordinary": shares, "far": shares}, {"a": 3.0, "b": 1.0})

    assert alarms(a=0.9, b=0.5).best() == "a"
    assert alarms(a=0.9, b=0.895).best() == "b"


def test_the_table_has_sets_and_prices(found):
    table = alarms_table(found)
    assert [row[0] for row in table.rows] == [*found.shares, "passes per input"]
    assert table.rows[2][1].startswith("100 [")


def test_it_is_read_as_it_was_written(found, tmp_path):
    marks = {"format": "credibly.alarms", "format_version": 1}
    path = tmp_path / "alarms.json"
    path.write_text(json.dumps({**marks, "alarms": found.as_json()}))
    assert read_alarms(path) == found
    for broken in ({}, {"alarms": 3}, {"alarms": {"shares": {"a": 1}}}):
        path.write_text(json.dumps({**marks, **broken}))
        with pytest.raises(cr.errors.FileFormatError, match=r"alarms\.json"):
            read_alarms(path)


def test_wilsons_interval_and_the_threshold():
    share = share_with_interval(torch.tensor([True] * 3 + [False] * 7))
    assert (share.value, share.low, share.high) == pytest.approx((0.3, 0.1078, 0.6032), abs=1e-4)
    assert str(share_with_interval(torch.zeros(0, dtype=torch.bool)).value) == "nan"
    assert threshold(torch.arange(99.0), 0.01) == 0.0
    assert threshold(torch.arange(99.0), 0.05) == 4.0


def test_a_model_without_hidden_layers_is_judged_too():
    net = nn.Linear(8, 3).double().eval()
    assert count_alarms(cr.Classifier(net), sets()) is not None


def test_the_picture_has_a_bar_for_each_set_and_method(found):
    figure = alarms_figure(found.shares)
    panel = figure.axes[0]
    heights = [patch.get_height() for patch in panel.patches]
    expected = [
        100 * found.shares[kind][name].value for name in found.passes for kind in found.shares
    ]
    assert heights == pytest.approx(expected)
    assert [text.get_text() for text in panel.get_legend().get_texts()] == list(found.passes)
    assert panel.get_xticklabels()[0].get_text() == next(iter(found.shares)).replace(" ", "\n")


def test_no_share_is_less_than_nothing():
    nothing = Interval(0.0, -1e-9, 0.04)
    alarms = Alarms(0.01, 100, {"ordinary": {"Judge": nothing}}, {"Judge": 1.0})
    assert alarms_table(alarms).rows[0][1] == "0 [0, 4]"
