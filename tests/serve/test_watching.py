"""The watch over the stream in a service: the same as in Python, also after a restart."""

import pytest
import torch

import credibly as cr
from credibly.errors import InvalidArgumentError
from credibly.serve.watching import Watching


def numbers(answer):
    found = answer.json()
    return {k: v for k, v in found.items() if k != "by_class"}, found["by_class"].keys()


def test_the_watch_goes_on_after_a_restart(judge, running_service, tmp_path, wait_until):
    place = tmp_path / "watch.safetensors"
    calm, strange = torch.randn(60, 4), torch.randn(60, 4) + 3
    expected = cr.DriftWatch.fit(judge)
    with running_service(judge, watching=Watching.begin(judge, place, None, 0.01)) as asked:
        for first in range(0, 60, 6):
            asked.judge(calm[first : first + 6])
            expected.update(judge(calm[first : first + 6]))
        wait_until(lambda: asked.service.watching.watch.seen == 60)
        state = expected.state.as_json(["cat", "dog", "owl"])
        told, classes = numbers(asked.client.get("/v1/drift"))
        assert told == pytest.approx({k: v for k, v in state.items() if k != "by_class"})
        assert classes == state["by_class"].keys()
        assert not told["alarm"]
    assert place.exists()
    with running_service(judge, watching=Watching.begin(judge, place, None, None)) as asked:
        for first in range(0, 60, 6):
            asked.judge(strange[first : first + 6])
            expected.update(judge(strange[first : first + 6]))
        wait_until(lambda: asked.service.watching.watch.seen == 120)
        told, _ = numbers(asked.client.get("/v1/drift"))
        text = asked.client.get("/metrics").text
    assert told["alarm"] is True
    assert told["since"] == expected.since
    assert "credibly_drift_alarm 1.0" in text
    assert "credibly_drift_seen 120.0" in text


def test_fresh_ordinary_inputs_come_as_verdicts(tmp_path):
    pytest.importorskip("pyarrow")
    import numpy as np

    judge = cr.Judge.fit(cr.Classifier(torch.nn.Linear(4, 3)), torch.randn(200, 4))
    np.save(tmp_path / "fresh.npy", torch.randn(150, 4).numpy())
    cr.judge_file(judge, tmp_path / "fresh.npy", tmp_path / "fresh.parquet")
    watching = Watching.begin(judge, None, tmp_path / "fresh.parquet", 0.02)
    assert watching.watch.settings.reference == 150
    assert watching.watch.settings.false_alarms == 0.02
    watching.save()


def test_a_watch_of_another_judge_is_refused(judge, tmp_path):
    place = tmp_path / "watch.safetensors"
    Watching.begin(judge, place, None, 0.01).save()
    other = cr.Judge.fit(cr.Classifier(torch.nn.Linear(4, 3)), torch.randn(200, 4))
    with pytest.raises(InvalidArgumentError, match="Judge that the watch"):
        Watching.begin(other, place, None, 0.01)


def test_a_judge_of_profiles_is_watched_elsewhere():
    net = torch.nn.Linear(4, 3)
    judge = cr.Judge.fit(cr.Classifier(net), torch.randn(200, 4), profile="always")
    with pytest.raises(InvalidArgumentError, match="credibly drift"):
        Watching.begin(judge, None, None, 0.01)
