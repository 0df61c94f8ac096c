import re
from pathlib import Path

import torch

import credibly as cr

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "decisions.md").read_text("utf-8")


def test_the_examples_of_the_page_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):  # each goes on from the last
        exec(compile(code, "decisions.md", "exec"), names)  # noqa: S102  # our own page
    assert "answered" in capsys.readouterr().out
    assert 0.3 < names["decision"].coverage <= 1
    assert names["sets"].shape == (20, 10)
    assert names["trust"].shape == names["switch"].shape == (20,)
    assert not names["flag"].flag(names["new"]).all()
    own = names["rule_hard"], names["rule_easy"]
    for row, hard in enumerate(names["of_hard"].tolist()):
        alone = own[0 if hard else 1].decide(names["new"][row : row + 1])
        assert bool(alone.accepted[0]) == bool(names["answered"][row])
    assert (tmp_path / "profile.png").read_bytes().startswith(b"\x89PNG")


def test_logits_with_log_prices_choose_the_cheapest_class():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(500, 4, generator=generator, dtype=torch.float64)
    prices = torch.tensor([1.0, 20.0, 3.0, 0.5], dtype=torch.float64)
    probabilities = logits.softmax(1)
    bills = torch.stack(  # of answering j: all other classes are missed
        [(probabilities * prices).sum(1) - probabilities[:, j] * prices[j] for j in range(4)], 1
    )
    clf = cr.Classifier(torch.nn.Identity(), pick=lambda found: found + prices.log())
    assert torch.equal(clf.logits(logits).argmax(1), bills.argmin(1))
