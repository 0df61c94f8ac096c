"""What runs in a worker of Ray, tried in this process: what is sent, said and refused."""

import pickle
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import nn

import credibly as cr
from credibly.batch.engines import Engine
from credibly.batch.ray_actor import Shipped, Worker
from credibly.batch.ray_connection import _knock
from credibly.io import kinds
from credibly.io.places import LocalPlace
from credibly.io.stores import place_of
from tests.batch.elsewhere import MODEL, local
from tests.batch.settings import SMALL


class Unpacked(Worker):
    def _received(self, sent):
        return pickle.loads(sent[0])  # noqa: S301  # Ray does the same


@dataclass(frozen=True)
class Sent(Engine):
    """All that Ray's engine does but Ray: the work is sent, unpacked and asked for."""

    before: object = None
    folder: str = ""

    @property
    def name(self):
        return "sent"

    def run(self, work, numbers, reporter):
        content = pickle.dumps(self.changed(Shipped.of(work)))
        if self.before is not None:
            self.before()
        worker = Unpacked()
        answers = [worker.load([content], self.folder, None, 1)]
        if answers[0].error is None:
            answers += map(worker.make, numbers)
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        assert [answer.record["part"] for answer in answers[1:]] == list(numbers)
        reporter.pulse.done = work.plan.rows

    def changed(self, shipped):
        return shipped


@pytest.fixture(autouse=True)
def _path(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)


def test_what_is_sent_gives_the_bytes_of_one_process(loaded, data, tmp_path, out):
    cr.score(loaded(), data, out, **SMALL, engine=Sent())
    assert out.read_bytes() == local(loaded(), data, tmp_path)


def test_a_live_model_and_a_judge_are_sent_as_they_are(clf, data, tmp_path):
    judge = cr.Judge.fit(clf, np.random.default_rng(1).normal(size=(200, 4)))
    for name, engine in (("a", Sent()), ("b", "local")):
        cr.judge_file(judge, data, tmp_path / name, chunk_size=4, shard_size=8, engine=engine)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("place", ["{}/out.parquet", "memory://{}/out/"])
def test_a_folder_of_images_is_listed_once_for_all_workers(tmp_path, monkeypatch, place):
    pixels = np.random.default_rng(0).integers(0, 256, size=(9, 2, 2), dtype=np.uint8)
    folder = tmp_path / "images"
    folder.mkdir()
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{number}.png")
    clf = cr.Classifier(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval())

    def list_no_more():
        def refuse(*_):
            message = "listed again"
            raise AssertionError(message)

        monkeypatch.setattr(kinds, "list_folder", refuse)

    out = place.format(tmp_path)
    cr.score(clf, folder, out, **SMALL, engine=Sent(before=list_no_more))
    assert cr.verify_output(out).rows == 9
    parts = place_of(f"{out.rstrip('/')}.parts")
    assert not parts.exists() or list(parts.list()) == []


def test_another_model_on_the_worker_is_refused(loaded, data, out, tmp_path):
    clf, path = loaded(), tmp_path / "model.py"
    engine = Sent(before=lambda: path.write_text(path.read_text() + "\n# changed\n"))
    with pytest.raises(cr.errors.ModelError, match=r"another model here.*code differ"):
        cr.score(clf, data, out, **SMALL, engine=engine)
    assert not out.with_name(f"{out.name}.parts").exists()


def test_an_input_that_changes_is_noticed_by_the_worker(loaded, data, out):
    engine = Sent(before=lambda: np.save(data, np.load(data) + 1))
    with pytest.raises(cr.errors.FileFormatError, match="changed while it was read"):
        cr.score(loaded(), data, out, **SMALL, engine=engine)
    assert not out.exists()


def test_a_full_disk_of_a_worker_is_an_error_that_says_so(loaded, data, out, monkeypatch):
    from credibly.batch import parts

    def full():
        def refuse(*_, **__):
            raise cr.errors.OutputError("x.parquet cannot be written: the disk is full",
                                        remedy="make room")  # fmt: skip

        monkeypatch.setattr(parts, "_write", refuse)

    with pytest.raises(cr.errors.OutputError, match=r"the disk is full.*make room"):
        cr.score(loaded(), data, out, **SMALL, engine=Sent(before=full))


def test_a_module_that_the_worker_does_not_have_is_named(data, out, tmp_path):
    only = tmp_path / "only"
    only.mkdir()
    (only / "only_sent.py").write_text(MODEL + "DRIVER = 0\n")
    sys.path.insert(0, str(only))
    clf = cr.load_classifier("only_sent:Net")

    def leave():
        sys.path.remove(str(only))
        del sys.modules["only_sent"]
        (only / "only_sent.py").unlink()

    with pytest.raises(cr.errors.ModelError, match=r"only_sent.*on the worker.*--working-dir"):
        cr.score(clf, data, out, **SMALL, engine=Sent(before=leave))


def test_code_of_a_model_that_raises_on_the_worker_is_named(data, out, loaded, tmp_path):
    clf, path = loaded(), tmp_path / "model.py"

    def spoil():
        path.write_text("raise KeyError('no such setting')")

    with pytest.raises(cr.errors.CrediblyError, match="no such setting"):
        cr.score(clf, data, out, **SMALL, engine=Sent(before=spoil))


def test_an_output_that_the_worker_does_not_see_is_named(loaded, data, out, tmp_path):
    class Elsewhere(Sent):
        def changed(self, shipped):
            there = LocalPlace(Path(tmp_path / "not shared"))
            return replace(shipped, writer=replace(shipped.writer, data=there))

    with pytest.raises(cr.errors.OutputError, match=r"no folder .*not shared.*all of them share"):
        cr.score(loaded(), data, out, **SMALL, engine=Elsewhere())


class NeedsPaper(nn.Linear):
    def forward(self, x):
        if len(x) == 4:  # as all chunks are
            message = "out of paper"
            raise RuntimeError(message)
        return super().forward(x)


def test_an_error_of_the_work_reaches_who_waits(data, out):
    clf = cr.Classifier(NeedsPaper(4, 3).double())
    with pytest.raises(cr.errors.ModelError, match=r"rows 0 to 3 with .*out of paper"):
        cr.score(clf, data, out, **SMALL, engine=Sent())


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("cluster", r"`engine`: expected 'local', 'ray' or a credibly.ray.Ray"),
        (7, r"`engine`"),
    ],
)
def test_an_unknown_engine_is_refused(clf, data, out, engine, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        cr.score(clf, data, out, **SMALL, engine=engine)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"workers": 0}, "workers"),
        ({"workers": 1.5}, "workers"),
        ({"gpus_per_worker": -1}, "gpus_per_worker"),
        ({"cpus_per_worker": 0}, "cpus_per_worker"),
        ({"patience": "long"}, "patience"),
        ({"working_dir": "no such folder"}, "working_dir"),
    ],
)
def test_settings_of_ray_are_checked(settings, words):
    with pytest.raises(cr.errors.InvalidArgumentError, match=words):
        cr.ray.Ray(**settings)


@pytest.mark.parametrize("address", ["head", "head:port", "ray://head:10001", ":6379"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"HOST:PORT of the head"):
        _knock(address)


def test_an_address_where_nothing_answers_is_refused_at_once(clf, data, out):
    engine = cr.ray.Ray(address="127.0.0.1:1")
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"127\.0\.0\.1:1 .*refused.*firewall"):
        cr.score(clf, data, out, **SMALL, engine=engine)
    assert not out.with_name(f"{out.name}.parts").exists()


def test_without_ray_the_extra_is_named_and_the_rest_works(clf, data, out, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(cr.errors.MissingExtraError, match=r"credibly\[ray\]"):
        cr.score(clf, data, out, **SMALL, engine="ray")
    assert cr.score(clf, data, out, **SMALL).rows == 23


def test_two_runs_on_one_output_are_refused_whatever_the_engine(clf, data, out):
    inner = []

    def start_another(_):
        if not inner:
            with pytest.raises(cr.errors.OutputError) as caught:
                cr.score(clf, data, out, **SMALL, engine=cr.ray.Ray(workers=1))
            inner.append(str(caught.value))

    cr.score(clf, data, out, **SMALL, progress=start_another)
    assert "another run is working on" in inner[0]
