"""The watch over the stream in a service: the same as in Python, also after a restart."""

import pytest
import torch

import credibly as cr
from credibly.errors import InvalidArgumentError
from credibly.serve.metrics import Metrics
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


def test_settings_that_the_file_does_not_have_are_refused(judge, tmp_path):
    """They would not be used; the same command line goes on after a restart."""
    place = tmp_path / "watch.safetensors"
    Watching.begin(judge, place, None, 0.02).save()
    assert Watching.begin(judge, place, None, 0.02).watch.settings.false_alarms == 0.02
    with pytest.raises(InvalidArgumentError, match=r"`false_alarms`: expected 0\.02, as in"):
        Watching.begin(judge, place, None, 0.01)


def test_other_ordinary_inputs_than_the_file_has_are_refused(tmp_path):
    pytest.importorskip("pyarrow")
    import numpy as np

    judge = cr.Judge.fit(cr.Classifier(torch.nn.Linear(4, 3)), torch.randn(200, 4))
    np.save(tmp_path / "fresh.npy", torch.randn(150, 4).numpy())
    fresh, place = tmp_path / "fresh.parquet", tmp_path / "watch.safetensors"
    cr.judge_file(judge, tmp_path / "fresh.npy", fresh)
    Watching.begin(judge, place, None, None).save()
    with pytest.raises(InvalidArgumentError, match="`ordinary`: expected 0 usable inputs"):
        Watching.begin(judge, place, fresh, None)
    place.unlink()
    Watching.begin(judge, place, fresh, None).save()
    assert Watching.begin(judge, place, fresh, None).watch.settings.reference == 150
    np.save(tmp_path / "others.npy", torch.randn(150, 4).numpy())
    cr.judge_file(judge, tmp_path / "others.npy", tmp_path / "others.parquet")
    with pytest.raises(InvalidArgumentError, match=r"150 usable inputs, .*got 150 other us"):
        Watching.begin(judge, place, tmp_path / "others.parquet", None)


def test_a_file_that_cannot_be_written_is_said_before_the_first_request(judge, tmp_path):
    with pytest.raises(cr.errors.OutputError, match="cannot be written"):
        Watching.begin(judge, tmp_path / "none" / "watch.safetensors", None, None)


def test_a_watch_that_is_lost_at_the_end_is_told(judge, tmp_path, running_service):
    place = tmp_path / "folder" / "watch.safetensors"
    place.parent.mkdir()
    with running_service(judge, watching=Watching.begin(judge, place, None, None)) as asked:
        assert asked.judge(torch.randn(4, 4)).status_code == 200
        place.unlink()
        place.parent.rmdir()
    assert isinstance(asked.service.unsaved, cr.errors.OutputError)


def test_rows_on_which_the_model_raises_are_counted(judge, running_service, wait_until):
    x = torch.randn(4, 4)
    x[1, 0] = 77.0  # the model raises
    with running_service(judge, watching=Watching.begin(judge, None, None, None)) as asked:
        assert asked.judge(x).status_code == 200
        wait_until(lambda: asked.service.watching.watch.seen == 4)
        assert asked.client.get("/v1/drift").json()["unusable"] == 1


def test_a_watch_that_fails_does_not_stop_the_answers(judge, running_service, wait_until):
    watching = Watching.begin(judge, None, None, None)
    watching.update = lambda _: 1 / 0
    with running_service(judge, watching=watching) as asked:
        for _ in range(2):
            assert asked.judge(torch.zeros(1, 4)).status_code == 200
        ask = lambda: asked.client.get("/metrics").text  # noqa: E731
        wait_until(lambda: 'credibly_failures_total{kind="ZeroDivisionError"} 2.0' in ask())
        assert asked.service.live


def test_the_state_of_all_classes_is_not_read_for_every_batch(judge, monkeypatch):
    """With many classes it takes longer than a batch."""
    watching = Watching.begin(judge, None, None, None)
    monkeypatch.setattr("credibly.decide.drift.state_of", lambda _: 1 / 0)
    found = judge(torch.randn(3, 4))
    assert watching.update(found) is False
    Metrics().drifted(watching.watch)
    assert watching.watch.seen == 3
