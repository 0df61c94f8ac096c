"""The page as a file: its policy, its data, and what it refuses."""

import base64
import hashlib
import html
import json
import re
import zlib

import hypothesis
import pandas as pd
import pytest
import torch
from hypothesis import strategies as st

import credibly as cr
from credibly.explore import drawing
from credibly.explore.page import as_json, render
from credibly.explore.table import MOST_ROWS, columns_of


def data_of(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1])


@pytest.fixture(scope="module")
def found():
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 3)
    clf = cr.Classifier(net, classes=["a", "b", "c"], space=cr.Space(columns=list("wxyz")))
    judge = cr.Judge.fit(clf, torch.randn(200, 4))
    return judge(torch.cat([torch.randn(20, 4), torch.full((1, 4), 50.0), torch.randn(1, 4) / 0]))


def test_the_policy_allows_the_one_script_and_the_one_style(found):
    text = found.explore(details=1).html
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1])
    parts = dict(part.split(" ", 1) for part in policy.split("; "))
    for element, rule in (("style", "style-src"), ("script", "script-src")):
        inside = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        digests = [
            base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in inside
        ]
        assert parts[rule] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert parts["default-src"] == parts["connect-src"] == "'none'"
    assert "unsafe" not in policy


def test_columns_labels_and_details_are_those_of_the_judgement(found):
    labels = found.predicted.clamp(min=0)
    data = data_of(found.explore(labels=labels, details=3, title="mine").html)
    columns = {column["name"]: column["values"] for column in data["columns"]}
    assert data["rows"] == len(found)
    assert data["title"] == "mine"
    assert columns["verdict"] == [str(verdict) for verdict in found.verdicts]
    assert columns["label"] == [found.class_name(k) for k in labels.tolist()]
    assert columns["reason"] == list(found.reasons)
    for name in ("trust", "p_outlier", "p_wrong"):
        ours = torch.tensor([float("nan") if v is None else v for v in columns[name]]).double()
        torch.testing.assert_close(ours, getattr(found, name), equal_nan=True, rtol=1e-6, atol=0)
    solved = {row: about for row, about in data["details"].items() if "classes" in about}
    assert len(solved) == 3
    for row, about in solved.items():
        profile = found.profile_of(int(row))
        assert [one["name"] for one in about["classes"]] == ["a", "b", "c"]
        after = [one["after"] for one in about["classes"]]
        torch.testing.assert_close(
            torch.tensor(after), profile.credibility[0].float(), rtol=1e-4, atol=1e-6
        )
        moved = (profile.perturbed - profile.x0)[0].abs()
        shown = [column["name"] for column in about["input"]["columns"]]
        assert shown == ["wxyz"[k] for k in moved.argsort(descending=True, stable=True).tolist()]


def test_details_are_spread_over_the_verdicts_from_the_least_trusted(found):
    details = data_of(found.explore(details=2).html)["details"]
    verdicts = [str(found.verdicts[int(row)]) for row in details if "classes" in details[row]]
    assert len(set(verdicts)) == len(verdicts) == 2
    assert data_of(found.explore(details=0).html)["details"] == {}


def test_other_inputs_are_shown_alone_as_far_as_there_is_room(found, monkeypatch):
    details = data_of(found.explore(details=2).html)["details"]
    alone = {int(row): about for row, about in details.items() if "classes" not in about}
    assert len(alone) == int(found.trust.isfinite().sum()) - 2
    for row, about in alone.items():
        x = found.inputs.variable_of(row).values[0]  # noqa: PD011  # of a Variable
        shown = [column["before"] for column in about["input"]["columns"]]
        assert shown == pytest.approx(x.tolist())
        assert [column["name"] for column in about["input"]["columns"]] == list("wxyz")
        assert {column["after"] for column in about["input"]["columns"]} == {None}
        assert "not that of this one" in about["title"]
    monkeypatch.setattr("credibly.explore.detail.ROOM", 1000)
    some = data_of(found.explore(details=2).html)["details"]
    least = sorted(alone, key=lambda row: float(found.trust[row]))
    left = {int(row) for row, about in some.items() if "classes" not in about}
    assert left == set(least[: len(left)])
    assert 0 < len(left) < len(alone)


def test_nearest_ordinary_inputs_are_the_nearest():
    torch.manual_seed(1)
    known = torch.randn(150, 5)
    judge = cr.Judge.fit(torch.nn.Linear(5, 3), known, features=None)
    new = torch.randn(1, 5)
    about = data_of(judge(new).explore(details=1).html)["details"]["0"]
    centre, unit = known.median(0)[0], known.std(0)
    points, point = (((x - centre) / unit).clamp(-4, 4) for x in (known, new))
    gaps = torch.linalg.vector_norm(points - point, dim=1)
    ours = [one["distance"] for one in about["neighbours"]]
    assert ours == pytest.approx(gaps.sort()[0][:3].tolist(), rel=1e-5)
    nearest = known[gaps.argmin()]
    values = [column["value"] for column in about["neighbours"][0]["columns"]]
    assert values == pytest.approx(
        (centre + unit * ((nearest - centre) / unit).clamp(-4, 4)).tolist(), abs=1e-5
    )


@hypothesis.given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_nothing_in_the_data_can_end_its_element(value):
    text = as_json(value)
    assert not set("<>&\u2028\u2029") & set(text)
    json.loads(text)


def test_a_title_is_text():
    text = render({"title": "</script><b>"}, title="<b>&")
    assert "<title>&lt;b&gt;&amp;</title>" in text
    assert data_of(text)["title"] == "</script><b>"


def test_a_notebook_gets_a_frame_of_its_own(found, tmp_path):
    page = found.explore(details=1)
    frame = page._repr_html_()
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', frame)[1]) == page.html
    assert "allow-same-origin" not in frame
    assert page.save(tmp_path / "page.html").read_text("utf-8") == page.html
    assert f"{len(found)} rows" in repr(page)


def test_too_many_rows_are_refused_with_advice():
    frame = pd.DataFrame({"trust": range(MOST_ROWS + 1)})
    with pytest.raises(
        cr.errors.InvalidArgumentError, match=r"at most 20000 rows.*credibly explore"
    ):
        columns_of(frame)


@pytest.mark.parametrize("details", [-1, 2.5, True, "all"])
def test_details_are_counted(found, details):
    with pytest.raises(cr.errors.InvalidArgumentError, match="details"):
        found.explore(details=details)


def test_columns_of_ones_own_are_shown(found):
    data = data_of(found.explore(details=0, columns={"site": ["here"] * len(found)}).html)
    assert data["extra"] == ["site"]
    assert {"name": "site", "kind": "words", "values": ["here"] * len(found)} in data["columns"]
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"22 values, got 1 of 'site'"):
        found.explore(columns={"site": ["here"]})


@pytest.mark.parametrize("name", ["trust", "verdict", "class", "reason", "row", "mark"])
def test_names_of_the_page_itself_are_refused(found, name):
    with pytest.raises(cr.errors.InvalidArgumentError, match=rf"columns.*got '{name}'"):
        found.explore(details=0, columns={name: ["x"] * len(found)})


def test_a_label_stands_in_one_place_only(found):
    labels = found.predicted.clamp(min=0)
    page = found.explore(details=0, columns={"label": ["a"] * len(found)})
    assert data_of(page.html)["extra"] == []
    with pytest.raises(cr.errors.InvalidArgumentError, match="got 'label'"):
        found.explore(details=0, labels=labels, columns={"label": ["a"] * len(found)})


def test_tokens_that_fill_up_a_text_are_not_shown():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = torch.nn.Embedding(10, 6), torch.nn.Linear(6, 3)

        def forward(self, input_ids, attention_mask):
            seen = attention_mask[..., None].to(self.head.weight.dtype)
            return self.head((self.embed(input_ids.long()) * seen).sum(1))

    torch.manual_seed(0)
    clf = cr.Classifier(Net().eval(), module="embed", unpack=True)
    ids = torch.randint(1, 10, (150, 5))
    ids[:, 3:] = 0
    judge = cr.Judge.fit(clf, {"input_ids": ids, "attention_mask": (ids != 0).long()})
    one = {"input_ids": ids[:1], "attention_mask": (ids[:1] != 0).long()}
    about = data_of(judge(one, keep=True).explore(details=1).html)["details"]["0"]
    shown = [word["text"] for word in about["input"]["words"]]
    assert shown == [f"#{k}" for k in ids[0, :3].tolist()]
    assert about["input"]["least"] > 0


def test_judgements_that_were_not_kept_say_so():
    judge = cr.Judge.fit(torch.nn.Linear(3, 2), torch.randn(150, 3))
    data = data_of(judge(torch.randn(5, 3), keep=False).explore().html)
    assert data["details"] == {}
    assert "keep=True" in data["advice_detail"]


def pixels_of(address):
    content = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    width, height = (int.from_bytes(content[k : k + 4]) for k in (16, 20))
    channels, start = {0: 1, 2: 3}[content[25]], content.index(b"IDAT") + 4
    size = int.from_bytes(content[start - 8 : start - 4])
    rows = torch.frombuffer(
        bytearray(zlib.decompress(content[start : start + size])), dtype=torch.uint8
    )
    return rows.reshape(height, 1 + width * channels)[:, 1:].reshape(height, width, channels)


def test_pictures_are_png_with_the_given_pixels():
    pixels = torch.rand(5, 7, 3, dtype=torch.float64)
    assert torch.equal(pixels_of(drawing.picture(pixels, 0.0, 1.0)), (pixels * 255).round().byte())
    move = torch.tensor([[[0.0], [0.5], [-1.0]]], dtype=torch.float64)
    white, up, down = pixels_of(drawing.difference(move, 1.0))[0]
    assert white.tolist() == [247, 247, 247]
    assert up[0] > up[2]
    assert down.tolist() == [33, 102, 172]
    assert pixels_of(drawing.picture(torch.rand(600, 300, 1), 0, 1)).shape == (200, 100, 1)
