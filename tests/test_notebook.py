"""What a notebook shows, without one: tables that are safe and say what the object holds."""

from html.parser import HTMLParser

import pytest
import torch

import credibly as cr
from credibly import _notebook
from credibly.profile.arguments import ticking

BAD = "<script>x</script>"


class Seen(HTMLParser):
    """The text of a page by row of its tables; every element must end."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.open, self.text = [], [], ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, _):
        self.open.append(tag)
        self.text = "" if tag in {"td", "th"} else self.text
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in {"td", "th"}:
            self.rows[-1].append(self.text.strip())

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def judge():
    torch.manual_seed(0)
    clf, x = cr.Classifier(torch.nn.Linear(4, 2), classes=[BAD, "b"]), torch.randn(150, 4)
    labels = clf.predict(x)
    labels[::4] = 1 - labels[::4]
    return cr.Judge.fit(clf, x, labels, error_rate=0.8)


def test_a_judge_says_what_it_promises(judge):
    rows = dict(row for row in Seen(judge._repr_html_()).rows if len(row) == 2)
    assert rows["fitted on"] == "150 ordinary inputs, with labels"
    assert "80.0% of the accepted are wrong" in rows["promises"]
    assert {"trust"} <= set(rows)


def test_a_judgement_counts_its_verdicts_and_names_the_least_trusted(judge):
    x = torch.cat([torch.randn(30, 4), 50 + torch.zeros(4, 4)])
    x[0, 0] = torch.nan
    found = judge(x)
    html = found._repr_html_()
    assert BAD not in html
    rows = Seen(html).rows
    counts = {row[0]: int(row[1]) for row in rows if len(row) == 5 and row[1].isdigit()}
    assert counts == {str(v): found.verdicts.count(v) for v in set(found.verdicts)}
    named = [row for row in rows if row[0].isdigit()]
    assert len(named) == _notebook.MOST
    assert named[0][:3] == ["0", "unusable", "-"]
    assert named[1][4] == found.reasons[int(named[1][0])]


def test_a_judgement_of_nothing_strange_lists_no_rows(judge):
    found = judge(torch.randn(60, 4))
    trusted = found[found.accepted]
    assert "The least trusted" not in trusted._repr_html_()
    assert f"Judgement of {len(trusted)} inputs" in trusted._repr_html_()


@pytest.mark.parametrize("rows", [1, 9])
def test_a_profile_shows_its_first_rows(rows):
    clf = cr.Classifier(torch.nn.Linear(4, 3), classes=[BAD, "b", "c"])
    x = torch.randn(rows, 4)
    x[0, 0] = torch.inf
    profile = cr.credibility(clf, x, gamma=1.0)
    html = profile._repr_html_()
    assert BAD not in html
    shown = [row for row in Seen(html).rows if row[0].isdigit()]
    assert len(shown) == min(rows, _notebook.MOST)
    assert shown[0][1:4] == ["-", "-", "-"]
    for row in shown[1:]:
        k = int(row[0])
        assert row[1] == profile.class_name(int(profile.predicted[k]))
        assert float(row[3]) == pytest.approx(float(profile.risk[k].sqrt()), rel=1e-2)


def test_a_profile_of_some_classes_of_many():
    clf = cr.Classifier(torch.nn.Linear(4, 40))
    profile = cr.credibility(clf, torch.randn(3, 4), gamma=1.0, top=3)
    assert "3 inputs, top 3 of 40 classes" in profile._repr_html_()


def test_a_study_names_its_best_scores():
    draw = torch.Generator().manual_seed(1)
    labels = torch.randint(3, (60,), generator=draw)
    predicted = torch.where(torch.rand(60, generator=draw) < 0.7, labels, (labels + 1) % 3)

    def rows_of(kind, known, shift):
        scores = {
            name: (predicted == labels) * worth + torch.randn(60, generator=draw) - shift
            for name, worth in {"max_softmax": 1.0, "good": 3.0, "bad": 0.0}.items()
        }
        return cr.study.Rows(kind, known, predicted, predicted, scores, {})

    sets = {
        "mine": rows_of("ordinary", labels, 0.0),
        BAD: rows_of("outliers", torch.full((60,), -1), 2.0),
    }
    result = cr.study.summarise(sets, resamples=50)
    html = result._repr_html_()
    assert BAD not in html
    rows = [row for row in Seen(html).rows if len(row) == 4][1:]
    aurcs = {n: found.metrics["aurc"] for n, found in result.sets["mine"].failures.items()}
    assert (
        [row[0] for row in rows] == sorted(aurcs, key=aurcs.get) == ["good", "max_softmax", "bad"]
    )
    assert float(rows[0][1]) == pytest.approx(100 * aurcs["good"], rel=1e-2)
    best = next(row for row in Seen(html).rows if row[0] == BAD)
    assert best[1:3] == ["outliers", "60"]


def test_a_bar_moves_and_says_how_it_ended(monkeypatch):
    shown = []

    class Handle:
        def update(self, value):
            shown.append(value)

    def display(value, *, display_id):
        assert display_id
        shown.append(value)
        return Handle()

    monkeypatch.setattr("credibly.profile.arguments.display_of", lambda: display)
    monkeypatch.setattr(_notebook, "EVERY", 0.0)
    with ticking(True, "a <b>") as tick:
        tick(0.25)
    assert "a &lt;b&gt;, 25%" in shown[-2]._repr_html_()
    assert "done in" in repr(shown[-1])
    with pytest.raises(KeyError), ticking(True):
        raise KeyError
    assert "stopped after" in repr(shown[-1])


def test_there_is_no_notebook_here():
    assert _notebook.display_of() is None
