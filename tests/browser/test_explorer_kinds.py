"""Inputs other than images in the explorer: a table, a text."""

import sys

import numpy as np
import torch

import credibly as cr
from tests.browser.explorer_pages import explored, go, judged, opened

WORDS = ["[pad]", "the", "soup", "was", "not", "good", "bad", "view", "great", "awful"]
TEXT_MODEL = """
import torch, credibly as cr
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = torch.nn.Embedding(10, 6), torch.nn.Linear(6, 3)
    def forward(self, ids):
        return self.head(self.embed(ids.long()).tanh().mean(1))
model = cr.Classifier(Net().eval(), module="embed", classes=["no", "so", "yes"])
"""


def test_the_columns_of_a_table(page, tmp_path, monkeypatch):
    torch.manual_seed(0)
    (tmp_path / "table_model.py").write_text(
        "import torch, credibly as cr\ntorch.manual_seed(0)\n"
        "model = cr.Classifier(torch.nn.Linear(3, 2), classes=['low', 'high'],\n"
        "                      space=cr.Space(columns=['age', 'size', 'price']))\n",
        "utf-8",
    )
    monkeypatch.chdir(tmp_path)
    clf = cr.load_classifier("table_model.py:model").classifier
    judge = cr.Judge.fit(clf, torch.randn(200, 3))
    folder = judged(tmp_path, judge, torch.randn(8, 3).numpy())
    with explored(opened(folder, "table_model.py:model")) as url:
        go(page, f"{url}#row=2")
        page.get_by_role("rowheader", name="price").wait_for()
        assert page.get_by_text("Columns that moved most").is_visible()
        x0, x1 = (
            np.load(tmp_path / "x.npy")[2],
            judge(torch.from_numpy(np.load(tmp_path / "x.npy")[2:3])),
        )
        moved = (x1.profile_of(0).perturbed - x1.profile_of(0).x0)[0].abs()
        first = page.locator(".columns tbody tr").first.inner_text()
        best = int(moved.argmax())
        assert first.startswith(["age", "size", "price"][best])
        assert f"{x0[best]:.3f}"[:4] in first


def test_the_words_of_a_text(page, tmp_path, monkeypatch):
    (tmp_path / "text_model.py").write_text(TEXT_MODEL, "utf-8")
    (tmp_path / "words.txt").write_text("\n".join(WORDS), "utf-8")
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    clf = cr.load_classifier("text_model.py:model").classifier
    judge = cr.Judge.fit(clf, torch.from_numpy(draw.integers(10, size=(150, 5))).float())
    x = draw.integers(10, size=(6, 5))
    folder = judged(tmp_path, judge, x, scale=1)
    with explored(opened(folder, "text_model.py:model", scale=1)) as url:
        go(page, f"{url}#row=1")
        page.get_by_text("Words that moved most").wait_for()
        shown = page.locator(".words .word").all_inner_texts()
    assert shown == [WORDS[k] for k in x[1]]
    assert "text_model" not in sys.modules
