"""Training for the experiments: crops, splits, resumed runs, files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from credibly.errors import FileFormatError
from experiments import networks, recipes
from experiments.densenet169 import DenseNet169
from experiments.images import Images, held_out_slice
from experiments.recipes import Data, Recipe
from experiments.resnet18 import ResNet18
from experiments.train import Run, accuracy, main, train
from experiments.training_step import PADDING, Step, augmented, plan_epoch

RECIPE = Recipe("cifar10", "resnet18, no max-pool", epochs=2, batch=4, augment=True)


def images(count: int, *, classes: int = 3, seed: int = 0) -> Images:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, 3, 8, 8), generator=generator, dtype=torch.uint8)
    return Images(pixels, torch.arange(count) % classes)


def read(monkeypatch: pytest.MonkeyPatch, **parts: Images) -> None:
    """Let a data set consist of these images."""
    pixels = {part: Images(some.pixels / 255, some.labels) for part, some in parts.items()}
    monkeypatch.setattr(recipes, "read_split", lambda _dataset, _folder, part: pixels[part])


def data(seed: int = 0) -> Data:
    return Data(images(9, seed=seed), images(3, seed=1), images(3, seed=2), kept_back=3)


def interrupt(run: Run, given: Data) -> None:
    """Train until the second epoch."""

    def stop(line: str) -> None:
        if "epoch 2" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(run, given, stop)


def test_crops_are_those_of_a_loop() -> None:
    some = images(6)
    padded = nn.functional.pad(some.pixels, (PADDING,) * 4)
    plan = plan_epoch(6, replace(RECIPE, batch=6), torch.Generator().manual_seed(3))[0]
    for row, (which, down, right, flip) in enumerate(plan.T.tolist()):
        crop = padded[which, :, down : down + 8, right : right + 8]
        expected = (crop.flip(2) if flip else crop) / 255
        torch.testing.assert_close(augmented(padded, plan)[row], expected)
    assert len(set(plan[1].tolist())) > 1


def test_an_epoch_has_every_image_once_and_plain_recipes_leave_them_alone() -> None:
    plain = replace(RECIPE, augment=False, batch=5)
    plan = plan_epoch(20, plain, torch.Generator().manual_seed(0))
    assert sorted(plan[:, 0].flatten().tolist()) == list(range(20))
    some = images(20)
    padded = nn.functional.pad(some.pixels, (PADDING,) * 4)
    torch.testing.assert_close(augmented(padded, plan[1]), some.pixels[plan[1][0]] / 255)


def test_left_out_classes_are_gone_and_the_others_numbered_in_order() -> None:
    some = images(20, classes=10)
    kept = some.without((3, 9))
    old = [v for v in some.labels.tolist() if v not in (3, 9)]
    names = [0, 1, 2, 4, 5, 6, 7, 8]
    assert [names[v] for v in kept.labels.tolist()] == old
    assert len(kept.pixels) == 16


def test_the_last_images_are_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {"train": images(10), "test": images(4, seed=9)}
    read(monkeypatch, **everything)
    found = recipes.load_data(RECIPE, Path(), held_out=3)
    assert torch.equal(found.train.pixels, everything["train"].pixels[:7])
    assert torch.equal(found.held_out.pixels, everything["train"].pixels[7:])
    assert torch.equal(found.test.labels, everything["test"].labels)
    assert found.kept_back == 3


def test_eight_classes_are_chosen_for_on_the_images_they_were_trained_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = {"train": images(40, classes=10), "test": images(20, classes=10, seed=9)}
    read(monkeypatch, **everything)
    eight = replace(RECIPE, epochs=1, left_out=(3, 9))
    found = recipes.load_data(eight, Path(), held_out=15)
    assert len(found.held_out) == 12
    facts = networks.load(train(Run("net", eight, 0, tmp_path), found, lambda _: None)).facts
    assert facts["held_out"] == "15"

    again = held_out_slice(everything["train"], facts).without(eight.left_out)
    assert torch.equal(again.pixels, found.held_out.pixels)
    assert torch.equal(again.labels, found.held_out.labels)


def test_a_run_that_held_nothing_out_is_not_gone_on_with_otherwise(tmp_path: Path) -> None:
    run = Run("net", RECIPE, 0, tmp_path, save_every=0.0)
    interrupt(run, replace(data(), kept_back=0))
    for other in (data(), replace(data(), kept_back=0, train=images(8))):
        with pytest.raises(ValueError, match="other settings"):
            train(run, other, lambda _: None)


def test_a_stopped_run_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    whole = Run("net", RECIPE, seed=1, out=tmp_path / "whole")
    train(whole, data(), lambda _: None)

    stopped = Run("net", RECIPE, seed=1, out=tmp_path / "stopped", save_every=0.0)
    interrupt(stopped, data())
    lines: list[str] = []
    train(stopped, data(), lines.append)
    assert lines[0] == "continuing after epoch 1"
    ours, theirs = load_file(stopped.target), load_file(whole.target)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert not stopped.unfinished.exists()


def test_a_finished_run_is_left_as_it_is_and_not_replaced(tmp_path: Path) -> None:
    run = Run("net", replace(RECIPE, epochs=1), 0, tmp_path)
    content = train(run, data(), lambda _: None).read_bytes()
    lines: list[str] = []
    assert train(run, data(), lines.append) == run.target
    assert lines == [f"{run.target} is there already, made with these settings"]
    with pytest.raises(ValueError, match="made with other settings"):
        train(replace(run, recipe=RECIPE), data(), lambda _: None)
    assert run.target.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == [run.target.name]


def test_the_seconds_of_a_stopped_run_count(tmp_path: Path) -> None:
    run = Run("net", RECIPE, 0, tmp_path, save_every=0.0)
    interrupt(run, data())
    with safe_open(run.unfinished, "pt") as file:
        facts = file.metadata()
    assert float(facts["seconds"]) > 0
    save_file(load_file(run.unfinished), run.unfinished, metadata={**facts, "seconds": "1000"})
    assert int(networks.load(train(run, data(), lambda _: None)).facts["seconds"]) >= 1000


def test_another_seed_gives_other_weights_and_other_settings_are_refused(tmp_path: Path) -> None:
    short = replace(RECIPE, epochs=1)
    first, second = (Run("net", short, seed=s, out=tmp_path, save_every=0.0) for s in (0, 1))
    one, two = (load_file(train(run, data(), lambda _: None)) for run in (first, second))
    assert not torch.equal(one["conv1.weight"], two["conv1.weight"])
    interrupt(Run("net", RECIPE, 2, tmp_path, save_every=0.0), data())
    with pytest.raises(ValueError, match="other settings"):
        train(Run("net", replace(RECIPE, epochs=3), 2, tmp_path), data())


def test_the_file_says_how_it_was_made_and_how_good_it_is(tmp_path: Path) -> None:
    target = train(Run("net", replace(RECIPE, epochs=1), 0, tmp_path), data(), lambda _: None)
    trained = networks.load(target)
    assert trained.facts["trained_on"] == "9"
    assert trained.facts["held_out"] == "3"
    assert float(trained.facts["test_accuracy"]) == pytest.approx(
        accuracy(trained, data().test), abs=1e-4
    )


@pytest.mark.parametrize(
    "net",
    [
        ResNet18(channels=1, classes=4, max_pool=True),
        ResNet18(channels=3, classes=4, max_pool=False),
        DenseNet169(channels=3, classes=4, layers=(2, 2)),
    ],
    ids=["max-pool", "no max-pool", "densenet"],
)
def test_folded_norms_leave_the_function_as_it_was(net: nn.Module) -> None:
    net = net.double().eval()
    for part in net.modules():
        if isinstance(part, nn.BatchNorm2d):
            _stir(part)
    channels = next(net.parameters()).shape[1]
    x = torch.rand(2, channels, 16, 16, dtype=torch.float64)
    expected: Tensor = net(x)
    norms = _norms(net)
    folded = networks.folded_norms(net)
    assert _norms(folded) < norms
    torch.testing.assert_close(folded(x), expected)


def test_a_space_changes_the_units_and_not_the_answer(tmp_path: Path) -> None:
    net = networks.build("resnet18, no max-pool", channels=3, classes=4)
    facts = {"arch": "resnet18, no max-pool", "mean": "0.5,0.4,0.3", "std": "0.2,0.3,0.25"}
    networks.save(tmp_path / "net.safetensors", net, facts)
    trained = networks.load(tmp_path / "net.safetensors")
    pixels = torch.rand(2, 3, 8, 8)
    moved = trained.to_space("normalised", pixels)
    torch.testing.assert_close(trained.in_space("normalised")(moved), trained.net(pixels))
    low, high = trained.bounds("normalised")
    torch.testing.assert_close(trained.to_space("normalised", torch.zeros(1, 3, 1, 1))[0], low)
    torch.testing.assert_close(trained.to_space("normalised", torch.ones(1, 3, 1, 1))[0], high)


def _stir(norm: nn.BatchNorm2d) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    nn.init.uniform_(norm.weight, 0.5, 2)
    nn.init.normal_(norm.bias)


def _norms(net: nn.Module) -> int:
    return sum(isinstance(part, nn.BatchNorm2d) for part in net.modules())


def test_the_step_size_stays_for_a_while_and_then_falls_to_zero() -> None:
    recipe = replace(RECIPE, rate=0.5, steady=0.6)
    assert [recipe.rate_at(done) for done in (0.0, 0.3, 0.6)] == [0.5] * 3
    assert recipe.rate_at(0.8) == pytest.approx(0.25)
    assert recipe.rate_at(1.0) == pytest.approx(0)
    whole = replace(recipe, steady=0.0)
    assert whole.rate_at(0.25) == pytest.approx(0.25 * (1 + 0.5**0.5))


def _after_one_step(recipe: Recipe) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    torch.manual_seed(0)
    net = DenseNet169(channels=3, classes=3, layers=(1, 1)).train()
    before = {name: weight.detach().clone() for name, weight in net.named_parameters()}
    step = Step(net, images(8), recipe, torch.zeros(1, 3, 1, 1), torch.ones(1, 3, 1, 1), False)
    step.plan.copy_(plan_epoch(8, recipe, torch.Generator().manual_seed(0))[0])
    step.run()
    return before, {name: weight.detach() for name, weight in net.named_parameters()}


def test_decoupled_weight_decay_takes_its_share_of_the_weights_and_nothing_else() -> None:
    plain = replace(RECIPE, rate=0.1, weight_decay=0.0)
    before, without = _after_one_step(plain)
    _, decoupled = _after_one_step(replace(plain, weight_decay=0.5, decoupled=True))
    _, added = _after_one_step(replace(plain, weight_decay=0.5))
    for name, weight in before.items():
        torch.testing.assert_close(decoupled[name], without[name] - 0.1 * 0.5 * weight)
    assert not torch.allclose(added["fc.weight"], decoupled["fc.weight"])


def test_weight_decay_added_to_the_gradient_is_recorded_as_it_always_was() -> None:
    run = Run("net", RECIPE, 0, Path())
    assert "decoupled" not in run.settings(data())
    other = replace(run, recipe=replace(RECIPE, decoupled=True))
    assert '"decoupled": true' in other.settings(data())


def test_the_command_line_changes_weight_decay_and_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(monkeypatch, train=images(505), test=images(504))
    arguments = ["cifar10-resnet18", "--data", ".", "--out", str(tmp_path), "--device", "cpu"]
    main([*arguments, "--epochs", "1", "--held-out", "255", "--decoupled", "0.25"])
    made_by = json.loads(networks.load(next(tmp_path.iterdir())).facts["recipe"])
    assert (made_by["decoupled"], made_by["weight_decay"], made_by["epochs"]) == (True, 0.25, 1)


def test_data_that_are_not_there_are_named_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="1"):
        main(["cifar10-resnet18", "--data", str(tmp_path / "none"), "--out", str(tmp_path)])
    assert f"error: {tmp_path / 'none'} holds neither" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--held-out", "-5"), "`--held-out`"),
        (("--held-out", "600"), "600 of 505"),  # a slice would train on what it holds out
        (("--held-out", "300"), "a batch of 250 is left"),
        (("--device", "gpu"), "`--device`"),
        (("--epochs", "0"), "at least 1"),
    ],
)
def test_settings_that_leave_nothing_to_train_are_refused_in_words(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, str],
    said: str,
) -> None:
    read(monkeypatch, train=images(505), test=images(504))
    with pytest.raises(SystemExit) as caught:
        main(["cifar10-resnet18", "--data", ".", "--out", str(tmp_path / "out"), *more])
    assert caught.value.code in (1, 2)
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("ending", ["unfinished.safetensors", "safetensors"])
@pytest.mark.parametrize("content", [b"", b"no tensors at all"])
def test_a_broken_file_of_an_earlier_run_is_named(
    tmp_path: Path, ending: str, content: bytes
) -> None:
    run = Run("net", RECIPE, 0, tmp_path)
    path = tmp_path / f"net-seed0.{ending}"
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=f"{path.name}: .*not a readable safetensors file"):
        train(run, data())
    assert path.read_bytes() == content
