"""A notebook as its user sees it: run in a kernel, and what its cells show."""

import base64
import re
import struct

import pytest

from credibly import _notebook

CELLS = """
import torch, credibly as cr
torch.manual_seed(0); torch.set_num_threads(1)
clf = cr.Classifier(torch.nn.Linear(4, 3), classes=["cat", "dog", "<b>"])
known = torch.randn(150, 4)
judge = cr.Judge.fit(clf, known, clf.predict(known), progress=True)
judge
---
found = judge(torch.cat([torch.randn(8, 4), 90 + torch.zeros(2, 4)]))
found
---
profile = cr.credibility(clf, torch.randn(7, 4), gamma=1.0, progress=True)
profile
---
cr.plot_profile(profile, 0)
---
found.plot(0)
---
found.explore(details=1)
---
for _ in range(2):
    print("still quiet")
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(code.strip()) for code in CELLS.split("---")]
    )
    nbclient.NotebookClient(
        notebook, timeout=100, kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path_factory.mktemp("notebook"))}},
    ).execute()  # fmt: skip
    return [cell.outputs for cell in notebook.cells]


def shown(output, kind="text/html"):
    return [one["data"][kind] for one in output if kind in one.get("data", {})]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_answers_are_tables_and_nothing_is_said_on_the_error_stream(outputs):
    assert [one for cell in outputs for one in cell if one.get("name") == "stderr"] == []
    (_, judge), (found,), (_, profile) = (shown(cell) for cell in outputs[:3])
    assert "150 ordinary inputs, with labels" in judge
    assert "1.0% false alarms (proved: at most 2.0% on average)" in judge
    assert "Judgement of 10 inputs" in found
    assert found.count("<svg") >= 2
    assert "<b>outlier" not in found
    assert "Profile of 7 inputs, 3 classes" in profile
    assert "&lt;b&gt;" in profile + found
    assert len(re.findall("<tr>", profile.split("<thead>")[1])) == 1 + _notebook.MOST


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_a_bar_needs_no_widgets_and_ends_as_a_line(outputs):
    assert "looking at ordinary inputs: done in" in shown(outputs[0])[0]
    assert "solving profiles: done in" in shown(outputs[2])[0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_pictures_fit_the_page_and_are_sharp(outputs):
    for cell in outputs[3:5]:
        (picture,) = shown(cell, "image/png")
        pixels = struct.unpack(">II", base64.b64decode(picture)[16:24])
        size = cell[0]["metadata"]["image/png"]
        assert pixels[0] // 2 == size["width"]
        assert 300 <= size["width"] <= 900
        assert 100 <= size["height"] <= 500
    assert "<iframe" in shown(outputs[5])[0]
