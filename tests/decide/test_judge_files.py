"""A Judge on disk: the same verdicts after it, and nothing but a FileFormatError if damaged."""

import errno
import hashlib
import json
import math
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import credibly as cr
from credibly.decide.judge_files import digest
from credibly.model.memory import size_here
from tests.reference import models

KNOWN, NEW = models.inputs(120, seed=3), models.inputs(30, seed=4)
NEW[3] *= 50
NEW[4, 0] = math.nan


def images():
    return torch.rand(120, 1, 5, 5, generator=models.generator(0), dtype=torch.float64)


def small_images():
    return nn.Sequential(nn.Flatten(), nn.Linear(25, 8), nn.Tanh(), nn.Linear(8, 3)).double().eval()


def mostly_right():
    predicted = models.smooth_network(classes=3)(KNOWN).argmax(1)
    return torch.where(KNOWN[:, 0] > 1, 0, predicted)


CASES = {
    "plain": lambda: (models.smooth_network(classes=3), KNOWN, None, NEW, {}),
    "labels": lambda: (models.smooth_network(classes=3), KNOWN, mostly_right(), NEW, {}),
    "no profile": lambda: (models.smooth_network(classes=3), KNOWN, None, NEW,
                           {"profile": "never", "features": None}),
    "profiles": lambda: (models.smooth_network(classes=3), KNOWN, None, NEW,
                         {"profile": "doubtful"}),
    "one logit": lambda: (models.smooth_network(classes=1), KNOWN, None, NEW, {}),
    "function": lambda: (sines, KNOWN, None, NEW, {}),
    "images": lambda: (small_images(), images(), None, 2 * images()[:20], {}),
    "many classes": lambda: (models.smooth_network(classes=60), KNOWN, None, NEW, {}),
    "names": lambda: (cr.Classifier(models.smooth_network(classes=3), classes=("a", "b", "c")),
                      KNOWN, None, NEW, {"profile": "always"}),
}  # fmt: skip


def sines(x):
    return torch.sin(x[:, :3])


@pytest.mark.parametrize("name", CASES)
def test_verdicts_are_the_same_to_the_last_bit(name, tmp_path):
    net, known, labels, new, settings = CASES[name]()
    labels = None if labels is None else labels.long()
    judge = cr.Judge.fit(net, known, labels, **settings)
    judge.save(tmp_path / "new folder" / "judge")
    again = cr.Judge.load(str(tmp_path / "new folder" / "judge"), net)
    assert again.facts == judge.facts
    assert again.summary() == judge.summary()
    found, expected = again(new), judge(new)
    for key, value in vars(expected).items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value.nan_to_num(-7.0), getattr(found, key).nan_to_num(-7.0)), key
    assert found.verdicts == expected.verdicts
    assert list(found.reasons) == list(expected.reasons)
    assert found.names == expected.names
    again.save(tmp_path / "twice")
    for file in ("judge.json", "judge.safetensors"):
        first = tmp_path / "new folder" / "judge" / file
        assert first.read_bytes() == (tmp_path / "twice" / file).read_bytes()


@pytest.fixture(scope="module")
def net():
    return models.smooth_network(classes=3)


@pytest.fixture(scope="module")
def judge(net):
    return cr.Judge.fit(net, KNOWN, net(KNOWN).argmax(1))


@pytest.fixture
def saved(judge, tmp_path):
    judge.save(tmp_path / "judge")
    return tmp_path / "judge"


def test_another_network_is_refused(saved, net):
    for other in (models.smooth_network(classes=3, seed=1), models.relu_network(), sines):
        with pytest.raises(cr.errors.InvalidArgumentError, match=r"`net`.*fit a Judge for this"):
            cr.Judge.load(saved, other)
    assert cr.Judge.load(saved, cr.Classifier(net)).facts.samples == 120


def test_what_is_not_a_judge_is_said(tmp_path, saved, net):
    for place in (tmp_path / "nowhere", tmp_path, saved / "judge.json"):
        with pytest.raises(cr.errors.FileFormatError, match=r"not the folder of a Judge"):
            cr.Judge.load(place, net)
    (saved / "judge.safetensors").unlink()
    with pytest.raises(cr.errors.FileFormatError, match=r"judge\.safetensors"):
        cr.Judge.load(saved, net)


def changed(content, path, value):
    """The content with another value at a path of keys."""
    *way, last = path
    inner = content
    for key in way:
        inner = inner[key]
    if value is MISSING:
        del inner[last]
    else:
        inner[last] = value
    return content


MISSING = "left out"
SCALE = {"knots": [0.0, 1.0], "rises": [0.0, 1.0], "slope": 1.0}
DAMAGE = [
    (("format",), "credibly.selective"), (("format_version",), 1), (("facts",), None),
    (("facts", "false_alarms"), 2), (("facts", "false_alarms"), "0.01"),
    (("facts", "error_rate"), 0), (("facts", "confidence"), None), (("facts", "profile"), "often"),
    (("facts", "profile"), None), (("facts", "samples"), 0), (("facts", "samples"), 119),
    (("facts", "samples"), "many"), (("facts", "classes"), 4), (("facts", "classes"), 1),
    (("facts", "classes"), None), (("views",), None), (("views",), MISSING),
    (("facts", "cost"), -1), (("facts", "labelled"), 1), (("facts", "labelled"), False),
    (("facts", "left_out"), [0.5]), (("facts", "left_out"), 3), (("facts", "model"), 7),
    (("facts", "version"), None), (("facts", "shares_right"), {"trust": 2.0}),
    (("facts", "shares_right"), []), (("facts", "unknown"), 1), (("facts", "model"), MISSING),
    (("gamma",), 0.0), (("gamma",), "auto"), (("gamma",), MISSING), (("descent",), None),
    (("descent",), {}), (("descent", "radius"), -1.0), (("descent", "steps"), 0),
    (("descent", "steps"), 10**12), (("shape",), [2**40, 2**20]),
    (("descent", "other"), 1), (("features",), "nowhere"), (("features",), None),
    (("features",), 3), (("features",), "0"), (("top",), 3), (("top",), "all"), (("top",), MISSING),
    (("chunk_size",), 0), (("chunk_size",), 1.5), (("scales",), []), (("scales",), None),
    (("scales", 5), MISSING), (("scales", 0, "strange"), {"other": SCALE}),
    (("scales", 0, "strange"), {"statistics": SCALE}), (("scales", 1, "strange"), None),
    (("scales", 0, "unusual"), {"other": SCALE}), (("scales", 0, "gate"), "nan"),
    (("scales", 0, "gate"), "wide"), (("scales", 2, "middles"), {"energy": [0.0, 1.0]}),
    (("scales", 0, "middles", "confidence"), [0.0, 0.0]),
    (("scales", 0, "middles", "confidence"), [0.0]),
    (("scales", 0, "middles", "confidence"), [math.inf, 1.0]),
    (("trust",), {}), (("trust", "units"), {}), (("trust", "centre"), None), (("columns",), None),
    (("columns",), ["a"]), (("shape",), [4]), (("shape",), [8, 1]), (("shape",), [-8]),
    (("shape",), [2**40, 2**40]), (("shape",), None), (("classes",), ["a", "b"]),
    (("sha256",), "0" * 64), (("sha256",), MISSING),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), DAMAGE, ids=lambda v: str(v)[:40])
def test_damaged_numbers_are_refused(saved, net, path, value):
    file = saved / "judge.json"
    content = changed(json.loads(file.read_text()), path, value)
    file.write_text(json.dumps(content))
    with pytest.raises(cr.errors.FileFormatError, match=r"judge"):
        cr.Judge.load(saved, net)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '"judge"', "\x00", "[" * 100_000])
def test_what_is_no_object_of_json_is_refused(saved, net, text):
    (saved / "judge.json").write_text(text)
    with pytest.raises(cr.errors.FileFormatError, match=r"judge\.json"):
        cr.Judge.load(saved, net)


def test_damaged_tensors_are_refused(saved, net):
    file = saved / "judge.safetensors"
    good = file.read_bytes()
    for bad in (b"", good[:50], good[:-3], good[:-1] + bytes([good[-1] ^ 1]), good + b"\0"):
        file.write_bytes(bad)
        with pytest.raises(cr.errors.FileFormatError, match=r"judge\.safetensors"):
            cr.Judge.load(saved, net)


def test_files_of_another_judge_do_not_mix(saved, net, tmp_path):
    cr.Judge.fit(net, models.inputs(120, seed=9)).save(tmp_path / "other")
    (tmp_path / "other" / "judge.safetensors").replace(saved / "judge.safetensors")
    with pytest.raises(cr.errors.FileFormatError, match=r"not the file that judge\.json was saved"):
        cr.Judge.load(saved, net)


TENSORS = {
    "thresholds": lambda t: t[:2],
    "ordinary.trust": lambda t: t[1:],
    "ordinary.either.3": lambda t: t[1:],
    "ordinary.outlier.0": None,
    "metric.places": lambda t: t + 5,
    "ranges.low": lambda t: t[:, :3],
    "features.points": None,
    "calibration.scores": None,
    "points.points": None,
    "correlations.root": None,
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_do_not_go_together_are_refused_also_with_the_right_sum(saved, net, name):
    file = saved / "judge.safetensors"
    tensors = load_file(file)
    if TENSORS[name] is None:
        del tensors[name]
    else:
        tensors[name] = TENSORS[name](tensors[name]).contiguous()
    save_file(tensors, file)
    content = json.loads((saved / "judge.json").read_text())
    content["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (saved / "judge.json").write_text(json.dumps(content))
    with pytest.raises(cr.errors.FileFormatError, match=r"judge\.json"):
        cr.Judge.load(saved, net)


def test_a_full_disk_is_said_and_leaves_no_half_of_a_judge(judge, net, tmp_path, monkeypatch):
    whole = Path.write_bytes

    def half(self, content):
        whole(self, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        with pytest.raises(cr.errors.OutputError, match="the disk is full"):
            judge.save(tmp_path / "judge")
    assert list(tmp_path.iterdir()) == []
    judge.save(tmp_path / "judge")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", half)
        with pytest.raises(cr.errors.OutputError, match="the disk is full"):
            judge.save(tmp_path / "judge")
    assert cr.Judge.load(tmp_path / "judge", net).facts == judge.facts


def test_a_judge_is_a_folder(judge, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(cr.errors.OutputError, match=r"is a file.*folder"):
        judge.save(tmp_path / "file")
    with pytest.raises(cr.errors.OutputError, match="cannot be written"):
        judge.save(tmp_path / "file" / "judge")
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"Write Judge\.load\(folder, net\)"):
        cr.Judge.load(judge.examiner.clf, tmp_path)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_said(judge, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(cr.errors.OutputError, match="Permission denied"):
        judge.save(tmp_path / "closed" / "judge")


def test_a_chunk_size_that_was_found_is_that_of_the_device(judge, net, tmp_path):
    judge.save(tmp_path / "judge")
    place = tmp_path / "judge" / "judge.json"
    content = json.loads(place.read_text("utf-8"))
    assert content["chunk_auto"] is True
    for stored, here in ((4096, 256), (256, 256), (100, 100), (1000, 256)):  # 4096: on a GPU
        place.write_text(json.dumps({**content, "chunk_size": stored}), "utf-8")
        loaded = cr.Judge.load(tmp_path / "judge", net)
        assert loaded.examiner.chunk_size == here
        assert digest(loaded) == digest(judge)
    place.write_text(json.dumps({**content, "chunk_size": 4096, "chunk_auto": False}), "utf-8")
    assert cr.Judge.load(tmp_path / "judge", net).examiner.chunk_size == 4096
    assert size_here(256, torch.device("cuda")) == 4096
    assert size_here(100, torch.device("cuda")) == 100
