import json
from dataclasses import replace

import pytest
import torch

import credibly as cr
from credibly.data.sample import load_sample
from credibly.errors import InvalidArgumentError, OutputError
from experiments import adaptive
from experiments.adaptive_attacks import Job, jobs
from experiments.adaptive_inputs import ScaledBack, Targets
from experiments.adaptive_nearest import CarliniWagner, DeepFool
from experiments.adaptive_tables import blocks, print_tables
from experiments.adaptive_work import Folder, _key, successes, work
from experiments.made_with import stamp

EPS = 0.05
SMALL = [
    "--images", "4", "--held-out-images", "12", "--radii", str(EPS), "--steps", "2",
    "--pgd-steps", "4", "--pgd-restarts", "3", "--apgd-steps", "3", "--model-queries", "4",
    "--queries", "2", "--effort", "0.1",
]  # fmt: skip
MOST = ["--systems", "bBT", "--attacks", "A", "deepfool"]


def arguments(out, *more):
    return [*SMALL, "--out", str(out), *more]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Every attack but Carlini-Wagner, which takes 1500 steps, and those on A alone."""
    out = tmp_path_factory.mktemp("adaptive")
    return out, adaptive.main(arguments(out, *MOST))


@pytest.fixture(scope="module")
def subject(finished):
    out, _ = finished
    given = adaptive.parsed(arguments(out))
    return adaptive.prepare(given, Folder(out, out / "inputs"))


def folder_in(path):
    folder = Folder(path, path / "inputs")
    folder.begin({}, dict)
    return folder


def cells(out):
    return [json.loads(path.read_text("utf-8")) for path in (out / "cells").glob("*.json")]


def test_every_attack_is_there_for_every_system(finished):
    out, done = finished
    assert done > 20
    numbers = {letter: set() for letter in "bBAT"}
    for cell in cells(out):
        assert len(cell["success"]) == 4
        assert set(cell["success"]) <= {0, 1}
        numbers[cell["system"]] |= {f"A{n}" for n in range(9) if f"A{n}" in cell["attack"]}
    assert numbers["b"] >= {"A0", "A1", "A7"}
    assert numbers["B"] >= {f"A{n}" for n in range(8)}
    assert numbers["T"] == {f"A{n}" for n in range(9)}


def test_tables_say_by_which_command_and_with_what_they_were_made(finished, capsys):
    out, _ = finished
    numbers = print_tables(out)
    capsys.readouterr()
    assert numbers["made_with"] == [stamp("cpu")]
    assert len(numbers["commands"]) == 1
    assert numbers["commands"][0].startswith("python -m experiments.adaptive --images 4 ")
    assert "--out OUT --systems bBT" in numbers["commands"][0]
    assert str(out) not in numbers["commands"][0]


def test_a_folder_keeps_each_command_once(tmp_path):
    folder = Folder(tmp_path, tmp_path / "inputs")
    for command in ("one", "two", "one"):
        folder.note(command)
    assert json.loads((tmp_path / "commands.json").read_text())["commands"] == ["one", "two"]


def test_a_command_has_no_paths_of_a_machine():
    given = ["--model=/a/net.safetensors", "--test", "/b/x.npz", "--quiet", "--processes", "5"]
    said = adaptive.exact_command([*given, "--images", "16", "--out", "/c", "--no-sanity"])
    expected = "--model FILE --test FILE --images 16 --out OUT --no-sanity"
    assert said == f"python -m experiments.adaptive {expected}"


def test_what_can_refuse_is_attacked_by_those_who_know(finished, subject):
    out, _ = finished
    every = jobs(subject, adaptive.parsed(arguments(out, "--norm", "linf", "l2")))
    for letter in "AT":
        own = [job for job in every if job.systems == letter]
        assert {job.norm for job in own} == {"linf", "l2"}
        assert all("A8" in job.attack and job.find.attack.system.aware for job in own)
    assert not any("A8" in job.attack for job in every if job.systems == "B")
    assert not any(job.systems == "b" and job.norm == "none" for job in every)


def test_a_second_run_computes_nothing_and_gives_the_same_table(finished, capsys):
    out, _ = finished
    before = {path.name: path.stat().st_mtime_ns for path in (out / "cells").iterdir()}
    first = print_tables(out)
    assert adaptive.main(arguments(out, *MOST)) == 0
    assert {path.name: path.stat().st_mtime_ns for path in (out / "cells").iterdir()} == before
    assert print_tables(out) == first
    text = capsys.readouterr().out
    assert "worst case, image by image" in text
    assert "a large eps breaks everything" in text
    assert "more steps do not help" in text


def test_the_worst_case_is_that_of_a_naive_loop(finished):
    out, _ = finished
    for block in blocks(out):
        naive = []
        for image in range(4):
            broken = False
            for cell in cells(out):
                if cell["system"] != block.system:
                    continue
                inside = cell["norm"] == block.norm and cell["eps"] == EPS
                if cell["norm"] == "none":
                    inside = cell["sizes"][block.norm][image] <= EPS
                broken |= inside and cell["success"][image] == 1
            naive.append(broken)
        assert block.worst(EPS) == naive


def test_systems_that_nobody_aimed_at_are_named_so(finished):
    out, _ = finished
    titles = {block.system: block.title for block in blocks(out)}
    assert titles["A"].endswith("answered; no attack was aimed at it")
    assert not any("aimed" in titles[letter] for letter in "bBT")


def test_attacks_that_there_are_not_are_refused(finished, subject):
    out, _ = finished
    with pytest.raises(InvalidArgumentError, match=r"pgd \(A0\); .*A9, fgsm"):
        jobs(subject, adaptive.parsed(arguments(out, "--attacks", "A9", "pgd", "fgsm")))
    with pytest.raises(InvalidArgumentError, match="--transfer-model"):
        jobs(subject, adaptive.parsed(arguments(out, "--attacks", "transferred")))


def test_a_folder_of_other_settings_is_refused(finished):
    out, _ = finished
    with pytest.raises(OutputError, match=r"seed was 0 and is now 1\..*another folder"):
        adaptive.main(arguments(out, "--seed", "1"))
    with pytest.raises(InvalidArgumentError, match=r"steps.*another folder"):
        adaptive.main(arguments(out, "--steps", "3", "--attacks", "bpda"))


def test_thresholds_come_from_held_out_images_alone(finished, subject):
    out, _ = finished
    found = json.loads((out / "systems.json").read_text("utf-8"))
    sample = load_sample()
    held = sample.images[-12:]
    assert not any(torch.equal(a, b) for a in subject.x for b in held)
    # the same network to the bit: a short solve amplifies rounding
    clf, solver = subject.clf, cr.solvers.Hybrid(effort=0.1)
    gamma = cr.auto_gamma(clf, held)
    assert found["gamma"] == pytest.approx(gamma, rel=1e-5)
    profile = cr.credibility(clf, held, gamma=found["gamma"], solver=solver)
    for letter, score in (
        ("A", cr.scores.failure_score(profile)),
        ("T", cr.scores.tamper_score(profile)),
    ):
        ranked = sorted(score(profile).tolist(), reverse=True)
        kept = {"A": 11, "T": 12}[letter]  # at least 90 and 95 % of 12
        assert found["thresholds"][letter] == pytest.approx(ranked[kept - 1], rel=1e-3)


def test_one_solve_gives_the_verdicts_of_every_system(subject):
    labels = torch.where(torch.arange(4) < 2, subject.labels, (subject.labels + 1) % 10)
    found = successes(subject.systems, subject.clf, subject.x, labels)
    assert any(0 < int(bits.sum()) < 4 for bits in found.values())
    for letter, system in subject.systems.items():
        assert torch.equal(found[letter], system.judge(subject.clf, subject.x, labels).success)


def test_targets_in_one_batch_are_those_one_after_the_other(subject):
    attack = cr.attacks.TransferAPGD(
        eps=0.05, bounds=(0.0, 1.0), steps=3, kinds=("dlr-targeted",), targets=3
    )
    together = Targets(attack, subject.clf, subject.x, subject.labels)()
    apart = attack.all_restarts(subject.clf, subject.x, subject.labels)
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-5)


def test_an_independent_network_gives_rows_of_its_own(finished, subject):
    out, _ = finished
    torch.manual_seed(0)
    other = cr.Classifier(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)))
    given = adaptive.parsed(arguments(out, "--transfer-model", "other.safetensors"))
    rows = {job.attack: job for job in jobs(replace(subject, other=other, other_sha256="5"), given)}
    moved = rows["transferred apgd-ce (A1)"]
    assert (moved.settings["from"], moved.settings["from SHA-256"]) == ("other", "5")
    assert "transferred apgd-dlr-t (A1)" in rows
    shift = (moved.find()[0] - subject.x).flatten(1)
    own = (rows["apgd-ce (A1)"].find()[0] - subject.x).flatten(1)
    assert not torch.allclose(shift, own, atol=0.01)
    # a linear network's gradient is known: steps follow the sign where pixels are free to move
    net, labels = other.net[1], subject.labels
    slopes = (other.logits(subject.x).softmax(1) - torch.eye(10)[labels]) @ net.weight
    free = ((subject.x > EPS) & (subject.x < 1 - EPS)).flatten(1)
    assert float((shift.sign() == slopes.sign())[free].double().mean()) > 0.8


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_points_on_the_way_back_stay_inside(subject, norm):
    attack = cr.attacks.PGD(eps=0.05, norm=norm, bounds=(0.0, 1.0), steps=2)
    points = ScaledBack(attack, subject.clf, subject.x, subject.labels)()
    shift = (points.double() - subject.x.double()).flatten(2)
    size = shift.abs().amax(2) if norm == "linf" else shift.norm(dim=2)
    assert points.shape == (7, *subject.x.shape)
    assert float(size.max()) <= 0.05
    assert float(points.min()) >= 0
    assert float(points.max()) <= 1
    assert bool((size[1:] > size[:-1]).all())


def test_deepfool_is_that_of_foolbox(subject):
    found = DeepFool()(subject.clf, subject.x, subject.labels)
    known = cr.attacks.minimum_norm_attacks(
        subject.clf, subject.x, bounds=(0.0, 1.0), attacks=["deepfool"], labels=subject.labels
    )["deepfool"]
    sizes = [(inputs - subject.x).flatten(1).norm(dim=1) for inputs in (found, known)]
    torch.testing.assert_close(*sizes, rtol=0.01, atol=1e-3)


def test_an_image_that_is_wrong_already_stays(subject):
    wrong = (subject.labels + 1) % 10
    for attack in (DeepFool(), CarliniWagner(steps=1, searches=1)):
        found = attack(subject.clf, subject.x, wrong)
        torch.testing.assert_close(found, subject.x, rtol=0, atol=1e-5)


def test_work_that_another_process_holds_is_left_to_it(tmp_path, subject, monkeypatch):
    folder = folder_in(tmp_path)
    job = Job("clean", "none", 0.0, "b", {}, lambda: subject.x[None])
    with folder.lock("none 0 cleanb") as held:
        assert held

        def other_finishes(_seconds):
            path = folder.cell(job, "b")
            path.write_text(json.dumps({"settings": {}}), encoding="utf-8")

        monkeypatch.setattr("experiments.adaptive_work.time.sleep", other_finishes)
        assert work(subject, [job], folder) == 0


def test_memory_that_runs_out_is_waited_for(tmp_path, subject, monkeypatch):
    monkeypatch.setattr("experiments.adaptive_work._PATIENCE", 0.0)
    folder = folder_in(tmp_path)
    tries = []

    def find():
        tries.append(1)
        if len(tries) < 3:
            raise torch.cuda.OutOfMemoryError
        return subject.x[None]

    assert work(subject, [Job("clean", "none", 0.0, "b", {}, find)], folder) == 1
    assert len(tries) == 3


def test_inputs_are_made_once_for_all_systems(finished, subject):
    out, _ = finished
    given = adaptive.parsed(arguments(out, "--attacks", "pgd (A0)", "--no-sanity"))
    folder = Folder(out, out / "inputs")
    (job,) = [job for job in jobs(subject, given) if job.attack == "pgd (A0)"]
    assert job.systems == "bBAT"
    before = json.loads(folder.cell(job, "T").read_text("utf-8"))
    folder.cell(job, "T").unlink()

    def never():
        raise AssertionError

    assert work(subject, [replace(job, find=never)], folder) == 1
    assert json.loads(folder.cell(job, "T").read_text("utf-8"))["success"] == before["success"]


def test_inputs_are_kept_for_a_network_its_images_labels_and_gamma(finished, subject):
    out, _ = finished
    every = {job.attack: job for job in jobs(subject, adaptive.parsed(arguments(out)))}
    pgd, inverse = every["pgd (A0)"], every["inverse map (A6)"]
    assert pgd.gamma is None
    assert inverse.gamma == subject.systems["B"].gamma
    known = _key(inverse, subject)
    others = [
        _key(replace(inverse, gamma=1.0), subject),
        _key(replace(inverse, settings={}), subject),
        *(_key(inverse, replace(subject, **{name: value})) for name, value in (
            ("sha256", "other"), ("x", 1 - subject.x), ("labels", subject.labels.roll(1)),
        )),
    ]  # fmt: skip
    assert len({known, *others}) == 6


def test_another_file_of_the_same_name_is_noticed(tmp_path, subject):
    folder = folder_in(tmp_path)
    given = adaptive.parsed(arguments(tmp_path, "--transfer-model", "other.safetensors"))
    todo = [
        next(job for job in jobs(replace(subject, other=subject.clf, other_sha256=sha), given)
             if job.attack == "transferred apgd-ce (A1)")
        for sha in ("5", "6")
    ]  # fmt: skip
    assert work(subject, todo[:1], folder) == 1
    with pytest.raises(InvalidArgumentError, match=r"from SHA-256.*another folder"):
        work(subject, todo[1:], folder)
