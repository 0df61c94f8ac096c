"""`DriftWatch`: alarms after a change, the classes it names, batches, files, threads."""

import dataclasses
import json
import math
import threading

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import credibly as cr
from credibly.decide.drift import places_of
from credibly.decide.drift_bets import Bets, Ranks
from credibly.decide.drift_files import FORMAT
from credibly.errors import FileFormatError, InvalidArgumentError
from credibly.io.files import load_metadata
from tests.reference import models

COUNT, CLASSES = 150, 3


def drawn(count, seed):
    return models.inputs(count, seed=seed)


@pytest.fixture(scope="module")
def judge():
    return cr.Judge.fit(models.smooth_network(classes=CLASSES), drawn(COUNT, 0))


@pytest.fixture(scope="module")
def calm(judge):
    return judge(drawn(600, 1))


@pytest.fixture(scope="module")
def fresh(judge):
    return judge(drawn(300, 2))


@pytest.fixture(scope="module")
def moved(judge):
    return judge(3 * drawn(300, 3))


def same(one, other):
    """The same state but for rounding."""

    def numbers(state):
        found = dataclasses.asdict(state)
        by_class = found.pop("by_class")
        found |= {f"{k} {name}": v for k, part in by_class.items() for name, v in part.items()}
        return {name: -1 if value is None else value for name, value in found.items()}

    assert numbers(one) == pytest.approx(numbers(other), rel=1e-9)


@pytest.fixture(params=["fresh", "own"])
def known(request, fresh):
    return fresh if request.param == "fresh" else None


@pytest.mark.parametrize("by_class", [True, False])
def test_it_alarms_after_a_change_and_not_before(judge, calm, moved, known, by_class):
    watch = cr.DriftWatch.fit(judge, known, by_class=by_class)
    before = watch.update(calm)
    assert not before.alarm
    assert before.since is None
    assert before.p_value > 0.01
    assert "no drift in 600 inputs" in before.summary()
    after = watch.update(moved)
    assert after.alarm
    assert watch.alarm
    assert 600 < after.since <= 700
    assert after.p_value <= 0.01
    assert after.threshold == pytest.approx(200 if by_class else 100)
    assert f"alarm at input {after.since} of 900" in after.summary()
    assert repr(watch) == f"DriftWatch({after.summary()})"
    assert watch.update(calm).since == after.since  # an alarm stays


def test_fresh_inputs_may_be_judged_by_it(judge, calm, fresh):
    one, other = cr.DriftWatch.fit(judge, fresh), cr.DriftWatch.fit(judge, drawn(300, 2))
    assert one.update(calm) == other.update(calm)


def test_a_change_to_inputs_that_are_too_ordinary_is_found(judge, fresh):
    """Such as a camera that hangs."""
    watch = cr.DriftWatch.fit(judge, fresh, by_class=False)
    middle = fresh[fresh.p_ordinary.argsort(descending=True)[:1].tolist() * 200]
    assert watch.update(middle).alarm


def test_the_numbers_are_those_of_ranks_and_bets(judge, calm, fresh):
    watch = cr.DriftWatch.fit(judge, fresh, seed=7)
    state = watch.update(calm)
    chances = 1 - np.random.default_rng(7).random(len(calm))
    known, new = places_of(fresh, COUNT), places_of(calm, COUNT)
    assert new.min() >= 1
    assert new.max() <= COUNT + 1

    def worth(of_known, of_new):
        ranks = Ranks.none(COUNT, between=False)
        ranks.add(known[of_known])
        return Bets.none().after(ranks.of_new(new[of_new], chances[of_new]))[1]

    everyone = worth(slice(None), slice(None))
    assert state.log_martingale == pytest.approx(everyone[-1])
    assert state.martingale == pytest.approx(math.exp(everyone[-1]))
    paths = np.zeros((CLASSES, len(calm) + 1))
    for k in range(CLASSES):
        here = (calm.predicted == k).numpy()
        path = worth((fresh.predicted == k).numpy(), here)
        assert state.by_class[k].seen == here.sum()
        assert state.by_class[k].log_martingale == pytest.approx(path[-1])
        paths[k] = np.concatenate([[0], path])[np.concatenate([[0], np.cumsum(here)])]
    mean = np.log(np.exp(paths).mean(0))
    assert state.log_classes == pytest.approx(mean[-1])
    assert state.log_peak == pytest.approx(max(everyone.max(), mean.max(), 0))


def test_only_the_class_that_changed_is_named(judge, calm, fresh, moved):
    watch = cr.DriftWatch.fit(judge, fresh)
    changed = [n for n, k in enumerate(moved.predicted.tolist()) if k == 1]
    others = [n for n, k in enumerate(calm.predicted.tolist()) if k != 1]
    watch.update(calm)
    for first in range(0, 300, 10):  # little of it, among much that is as before
        few = [changed[first // 10 % len(changed)]]
        watch.update(cr.Judgement.concatenate([calm[others[first : first + 10]], moved[few]]))
    assert watch.state.classes == (1,)
    assert watch.by_class[1].alarm
    assert not watch.by_class[0].alarm
    assert "class 1" in watch.state.summary()


@pytest.mark.parametrize("size", [1, 7, 600])
def test_batches_make_no_difference(judge, calm, moved, size):
    everything = cr.Judgement.concatenate([calm[:100], moved[:50]])
    whole, cut = cr.DriftWatch.fit(judge), cr.DriftWatch.fit(judge)
    for first in range(0, 150, size):
        state = cut.update(everything[first : first + size])
    same(state, whole.update(everything))
    other = cr.DriftWatch.fit(judge, seed=1).update(everything)
    assert other.log_martingale != state.log_martingale


def test_unusable_inputs_are_counted_and_nothing_is_bet_on_them(judge, moved):
    x = 3 * drawn(300, 3)
    broken = torch.full((300, *x.shape[1:]), math.nan).to(x)
    mixed = torch.stack([broken, x], 1).flatten(0, 1)
    plain = cr.DriftWatch.fit(judge).update(moved)
    found = cr.DriftWatch.fit(judge).update(judge(mixed))
    assert (found.seen, found.unusable) == (600, 300)
    assert found.log_martingale == pytest.approx(plain.log_martingale)
    assert found.since == 2 * plain.since
    nothing = cr.DriftWatch.fit(judge).update(judge(broken))
    assert (nothing.martingale, nothing.alarm, nothing.p_value) == (1.0, False, 1.0)
    assert cr.DriftWatch.fit(judge).update(moved[:0]).seen == 0


def test_threads_share_a_watch(judge, calm):
    watch = cr.DriftWatch.fit(judge)
    threads = [threading.Thread(target=watch.update, args=(calm[:50],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert watch.seen == 400
    assert sum(found.seen for found in watch.by_class.values()) == 400


def test_it_refuses_what_another_judge_says(judge, calm):
    small = cr.Judge.fit(models.smooth_network(classes=CLASSES), drawn(COUNT - 31, 0))
    more = cr.Judge.fit(lambda x: torch.cat([x[:, :3] - 9, x[:, :3]], 1), drawn(COUNT, 0))
    watch = cr.DriftWatch.fit(judge)
    with pytest.raises(InvalidArgumentError, match="of a Judge with 150 ordinary inputs"):
        watch.update(small(drawn(50, 1)))
    with pytest.raises(InvalidArgumentError, match="classes below 3"):
        watch.update(more(drawn(50, 1)))
    assert watch.seen == 0
    assert watch.update(calm).seen == 600


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"false_alarms": 0}, "false_alarms.*share"),
        ({"false_alarms": 5}, "5 % is 0.05"),
        ({"seed": 0.5}, "seed"),
        ({"seed": -1}, "seed"),
        ({"ordinary": drawn(98, 0)}, "at least 99 usable inputs"),
    ],
)
def test_arguments_are_checked(judge, settings, words):
    with pytest.raises(InvalidArgumentError, match=words):
        cr.DriftWatch.fit(judge, **settings)


@pytest.mark.parametrize("by_class", [True, False])
def test_it_goes_on_after_a_restart(judge, calm, known, by_class, tmp_path):
    settings = {"by_class": by_class, "false_alarms": 0.05, "seed": 3}
    watch, moved = cr.DriftWatch.fit(judge, known, **settings), judge(3 * drawn(100, 3))
    watch.update(calm[:77])
    watch.save(tmp_path / "watch.safetensors")
    again = cr.DriftWatch.load(tmp_path / "watch.safetensors", judge)
    assert again.settings == watch.settings
    assert again.state == watch.state
    assert again.update(calm[77:]) == watch.update(calm[77:])
    assert again.update(moved) == watch.update(moved)
    assert again.alarm
    again.save(tmp_path / "watch.safetensors")
    assert cr.DriftWatch.load(tmp_path / "watch.safetensors", judge).state == watch.state


def test_a_new_watch_may_be_saved(judge, tmp_path):
    watch = cr.DriftWatch.fit(judge)
    watch.save(tmp_path / "watch.safetensors")
    assert cr.DriftWatch.load(tmp_path / "watch.safetensors", judge).state == watch.state


def test_another_judge_is_refused(judge, tmp_path):
    cr.DriftWatch.fit(judge).save(tmp_path / "watch.safetensors")
    other = cr.Judge.fit(models.smooth_network(classes=CLASSES), drawn(COUNT, 9))
    with pytest.raises(InvalidArgumentError, match=r"the Judge that the watch in .* was begun"):
        cr.DriftWatch.load(tmp_path / "watch.safetensors", other)


DAMAGES = {
    "which": lambda t: t - 1,
    "places": lambda t: t + 1000,
    "counts": lambda t: t + 1,
    "classes": lambda t: t.flip(0),
    "seen": lambda t: -t,
    "since": lambda t: t - 1,
    "logs": lambda t: t * math.nan,
    "totals": lambda t: t + math.inf,
    "inputs": lambda t: t[:2],
}


@pytest.mark.parametrize("part", DAMAGES)
@pytest.mark.parametrize("how", ["damaged", "missing", "other type"])
def test_a_damaged_file_is_refused(judge, calm, part, how, tmp_path):
    watch = cr.DriftWatch.fit(judge)
    watch.update(calm)
    path = tmp_path / "watch.safetensors"
    watch.save(path)
    tensors, metadata = load_file(path), load_metadata(path)
    if how == "missing":
        del tensors[part]
    else:
        tensors[part] = DAMAGES[part](tensors[part]) if how == "damaged" else tensors[part].half()
    save_file(tensors, path, metadata)
    with pytest.raises(FileFormatError, match=r"watch\.safetensors"):
        cr.DriftWatch.load(path, judge)


def test_settings_of_a_damaged_file_are_refused(judge, tmp_path):
    path = tmp_path / "watch.safetensors"
    cr.DriftWatch.fit(judge).save(path)
    tensors, metadata = load_file(path), load_metadata(path)
    good = json.loads(metadata["settings"])
    for change in (
        {"false_alarms": 7}, {"ordinary": -5}, {"ordinary": 1.5}, {"classes": 1}, {"judge": 3},
        {"by_class": "yes"}, {"seed": None}, {"more": 1}, {"reference": 10},
    ):  # fmt: skip
        save_file(tensors, path, metadata | {"settings": json.dumps(good | change)})
        with pytest.raises(FileFormatError, match=r"watch\.safetensors: cannot be read"):
            cr.DriftWatch.load(path, judge)
    save_file(tensors, path, metadata | {"format": "other"})
    with pytest.raises(FileFormatError, match=f"not a '{FORMAT}' file"):
        cr.DriftWatch.load(path, judge)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(FileFormatError):
        cr.DriftWatch.load(path, judge)


def test_false_alarms_over_many_judges_without_fresh_inputs():
    """Not covered by the proof: 6 Judges with 15 streams each; at most twice the rate of 0.1."""
    raised, net = 0, nn.Linear(2, 2)
    for seed in range(6):
        generator = models.generator(seed)
        judge = cr.Judge.fit(net, torch.randn(120, 2, generator=generator), false_alarms=0.1)
        found = judge(torch.randn(15 * 400, 2, generator=generator))
        for k in range(15):
            watch = cr.DriftWatch.fit(judge, by_class=False, false_alarms=0.1, seed=k)
            raised += watch.update(found[400 * k : 400 * (k + 1)]).alarm
    assert raised <= 0.2 * 90
