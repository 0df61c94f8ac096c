"""Train a network of the experiments; a run that was stopped goes on where it was.

    python -m experiments.train cifar10-resnet18 --seed 0 --data FOLDER --out checkpoints

Writes checkpoints/NAME-seed0.safetensors with the recipe and the accuracies in its metadata. The
last 2000 training images are not trained on (`--held-out`): choices are made on them. The test
set is looked at once, when training is over. A run is stored after the epoch that ends a minute,
and goes on from there if the same command is given again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import nn

import credibly
from credibly.io.tensor_files import save_tensors
from experiments import networks
from experiments.made_with import stamp
from experiments.recipes import HELD_OUT, MOMENTS, RECIPES, Data, Images, Recipe, load_data
from experiments.training_step import Step, plan_epoch, runner

Saying = Callable[[str], None]


@dataclass(frozen=True)
class Run:
    """One training: a recipe, a seed, and where it is kept."""

    name: str
    recipe: Recipe
    seed: int
    out: Path
    device: str = "cpu"
    save_every: float = 60.0
    compiled: bool = False

    @property
    def target(self) -> Path:
        """The finished network."""
        return self.out / f"{self.name}-seed{self.seed}.safetensors"

    @property
    def unfinished(self) -> Path:
        """Weights and Adam's memory after the last stored epoch."""
        return self.out / f"{self.name}-seed{self.seed}.unfinished.safetensors"

    def settings(self, data: Data) -> str:
        """What must agree for a run to be gone on with."""
        sizes = {"trained_on": len(data.train), "held_out": data.kept_back}
        recipe = asdict(self.recipe)
        if not recipe["decoupled"]:
            del recipe["decoupled"]  # as in files from before there was a choice
        return json.dumps({**recipe, "seed": self.seed, **sizes}, sort_keys=True)


def train(run: Run, data: Data, say: Saying = print) -> Path:
    """Train to the end, measure, write; a run that was finished is left as it is."""
    run.out.mkdir(parents=True, exist_ok=True)
    settings = run.settings(data)
    if _finished(run, settings):
        say(f"{run.target} is there already, made with these settings")
        return run.target
    step = _step(run, data)
    once = runner(step)
    begin, spent = _resume(run, step, settings, say)
    stored = time.perf_counter()
    clock = stored - spent
    for epoch in range(begin, run.recipe.epochs):
        loss = _epoch(run, step, once, epoch)
        now = time.perf_counter()
        say(f"{now - clock:6.0f} s  epoch {epoch + 1}/{run.recipe.epochs}: loss {loss:.4f}")
        if now - stored > run.save_every:
            _store(run, step, {"epoch": str(epoch + 1), "settings": settings,
                               "seconds": f"{now - clock:.1f}"})  # fmt: skip
            stored = now
    facts = _facts(run, data, step, time.perf_counter() - clock)
    aside = run.target.with_suffix(".part")  # nobody takes a file without its accuracies
    networks.save(aside, step.net, facts)
    trained = networks.load(aside, run.device)  # as users get it: rounded to half precision
    measured = {
        f"{part}_accuracy": f"{accuracy(trained, images):.4f}"
        for part, images in (("held_out", data.held_out), ("test", data.test))
        if len(images)
    }
    networks.save(aside, step.net, {**facts, **measured})
    aside.replace(run.target)
    run.unfinished.unlink(missing_ok=True)
    say(f"{run.target}: {measured}")
    return run.target


def _step(run: Run, data: Data) -> Step:
    torch.manual_seed(run.seed)
    torch.backends.cudnn.deterministic = True
    channels, classes = data.train.pixels.shape[1], int(data.train.labels.max()) + 1
    net = networks.build(run.recipe.arch, channels=channels, classes=classes)
    net = net.to(run.device).to(memory_format=torch.channels_last).train()
    mean, std = (
        torch.tensor(v, device=run.device).reshape(1, -1, 1, 1) for v in MOMENTS[run.recipe.dataset]
    )
    images = Images(data.train.pixels.to(run.device), data.train.labels.to(run.device))
    return Step(net, images, run.recipe, mean, std, run.compiled)


def _epoch(run: Run, step: Step, once: Callable[[], None], epoch: int) -> float:
    """Each image once; the order depends on seed and epoch alone, so it survives a stop."""
    generator = torch.Generator().manual_seed(1_000_003 * run.seed + epoch)
    plans = plan_epoch(len(step.images), run.recipe, generator).to(run.device)
    step.total.zero_()
    for number, plan in enumerate(plans):
        done = (epoch + number / len(plans)) / run.recipe.epochs
        step.rate.fill_(run.recipe.rate_at(done))
        step.plan.copy_(plan)
        once()
    return float(step.total) / len(plans)


def _finished(run: Run, settings: str) -> bool:
    """Whether the network is there; another one of this name is not replaced.

    Figures know a network by its bytes. Trained again it would be another.
    """
    if not run.target.exists():
        return False
    made_by = networks.tensors_in(run.target)[0].get("recipe")
    if made_by != settings:
        message = (
            f"{run.target} is there and was made with other settings ({made_by}); move it away, or "
            f"choose another --out, to train with {settings}."
        )
        raise ValueError(message)
    return True


def _store(run: Run, step: Step, facts: dict[str, str]) -> None:
    state = {name: value.contiguous().cpu() for name, value in step.state().items()}
    fresh = run.unfinished.with_suffix(".part")
    save_tensors(state, fresh, metadata=facts)
    fresh.replace(run.unfinished)


def _resume(run: Run, step: Step, settings: str, say: Saying) -> tuple[int, float]:
    """Epochs that are done, and the seconds they took."""
    if not run.unfinished.exists():
        return 0, 0.0
    facts, state = networks.tensors_in(run.unfinished)
    if facts.get("settings") != settings:
        message = (
            f"{run.unfinished} was begun with other settings ({facts.get('settings')}); remove it "
            f"to begin anew with {settings}."
        )
        raise ValueError(message)
    step.restore(state)
    say(f"going on after epoch {facts['epoch']}")
    return int(facts["epoch"]), float(facts.get("seconds", 0))


@torch.no_grad()
def accuracy(trained: networks.Trained, images: Images) -> float:
    """Share of images whose largest logit is the label's."""
    net: nn.Module = trained.net
    hits = [
        net(x.to(trained.mean.device).float() / 255).argmax(1).cpu() == y
        for x, y in zip(images.pixels.split(500), images.labels.split(500), strict=True)
    ]
    return torch.cat(hits).double().mean().item()


def _facts(run: Run, data: Data, step: Step, seconds: float) -> dict[str, str]:
    recipe = run.recipe
    device = torch.cuda.get_device_name() if step.plan.is_cuda else "CPU"
    moments = (",".join(str(v) for v in values) for values in MOMENTS[recipe.dataset])
    return {
        "arch": recipe.arch,
        **dict(zip(("mean", "std"), moments, strict=True)),
        "dataset": recipe.dataset,
        "left_out": ",".join(str(v) for v in recipe.left_out),
        "recipe": run.settings(data),
        "trained_on": str(len(data.train)),
        "held_out": str(data.kept_back),
        "seconds": f"{seconds:.0f}",
        "made_with": f"credibly {credibly.__version__}, torch {torch.__version__}, {device}",
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    given = parsed(arguments)
    recipe = RECIPES[given.recipe]
    if given.epochs is not None:
        recipe = replace(recipe, epochs=given.epochs)
    if given.decoupled is not None:
        recipe = replace(recipe, weight_decay=given.decoupled, decoupled=True)
    run = Run(given.recipe, recipe, given.seed, given.out, given.device, compiled=given.compile)
    try:
        stamp(given.device)  # refuses a device that is not there
        data = load_data(recipe, given.data, held_out=given.held_out)
        train(run, data, lambda line: print(line, flush=True))
    except (OSError, ValueError) as error:  # data that are not there, settings that do not fit
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("\nstopped; the same command goes on from the last epoch that was stored")
        sys.exit(130)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        message = f"at least 1 is needed, and {text} was given"
        raise argparse.ArgumentTypeError(message)
    return number


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "recipe", choices=tuple(RECIPES), help="network, data and training (experiments/recipes.py)"
    )
    add("--data", type=Path, required=True, help="folder of the data set's archives or files")
    add("--out", type=Path, default=Path("checkpoints"), help="default %(default)s")
    add("--seed", type=int, default=0, help="of weights, order and crops; default %(default)s")
    add("--epochs", type=_positive, help="instead of the recipe's")
    add("--held-out", type=int, default=HELD_OUT, metavar="IMAGES",
        help="of the training set that are not trained on, its last ones; default %(default)s, the "
        "published CIFAR-10 networks of the paper's figures have 0")  # fmt: skip
    add("--decoupled", type=float, metavar="DECAY",
        help="weight decay, taken from the weights themselves")  # fmt: skip
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="here %(default)s")
    add("--compile", action="store_true", help="fuse layers with torch.compile")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
