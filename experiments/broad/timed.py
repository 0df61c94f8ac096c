"""One large network within a given time: trained, then measured; what is finished is written.

    python -m experiments.broad.timed --data FOLDER --out results/broad [--network DenseNet169]
        [--device cuda] [--training 120] [--seconds 240]

`--training` seconds are for training: the number of epochs is chosen from the time of a step, and
the step size falls along a cosine over them. After `--seconds`, counted from the start, nothing new
is begun. First come the methods of a few forwards on all sets, then the costly ones, on fewer
images where all would take too long; each group is written when it is done. The time of every stage
is printed, and stands in the file.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import credibly as cr
from credibly.model.derivatives import output_gradient
from experiments.broad.image_sets import Plan
from experiments.broad.images import (
    SPECS,
    TRAININGS,
    Spec,
    prepared,
    run_epoch,
    subject_of,
)
from experiments.broad.measure import measure, sets_of
from experiments.broad.rows import Row, merged, write
from experiments.broad.subject import Subject
from experiments.images import Images, read_npz
from experiments.training_step import Step, runner

TIMED_STEPS = 10
COSTLY = ("profiles", "mode")
COSTLY_PASSES = 62
"""Of all costly methods per image: noise votes 10, the nearest mode 21, profiles 31."""
LEAST = 100
"""Images of a set when costly methods have little time."""
CHUNK = 500


class TimeIsUpError(Exception):
    """Nothing more may be begun."""


@dataclass
class Clock:
    """The time that is left, and what was spent on which stage."""

    seconds: float
    started: float = field(default_factory=time.monotonic)
    stages: dict[str, float] = field(default_factory=dict)

    @property
    def spent(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    @property
    def left(self) -> float:
        """Seconds until nothing new is begun."""
        return self.seconds - self.spent

    def say(self, words: str) -> None:
        """Print what was done."""
        print(f"{self.spent:6.1f} s  {words}", flush=True)

    def say_or_stop(self, words: str) -> None:
        """Print what was done, and stop if the time is up."""
        self.say(words)
        if self.left < 0:
            raise TimeIsUpError(words)

    def note(self, stage: str) -> None:
        """Keep the time at the end of a stage, and print it."""
        self.stages[stage] = round(self.spent, 1)
        self.say(stage)


def trained_for(
    spec: Spec, train: Images, device: str, until: float, clock: Clock
) -> tuple[nn.Module, int]:
    """Train for as many epochs as end before `until` on the clock; at least one."""
    step, net = prepared(spec, train, 0, device)
    step.net.to(memory_format=torch.channels_last)
    once = runner(step)
    clock.note("a step is ready")
    each = seconds_of(step, once) * (len(train) // spec.recipe.batch)
    epochs = max(1, int((until - clock.spent) / each))
    step.recipe = replace(step.recipe, epochs=epochs)
    clock.note(f"an epoch takes {each:.1f} s: {epochs} epochs")
    for epoch in range(epochs):
        run_epoch(step, once, epoch, 0)
        wait(device)
        if epoch and clock.spent > until + 2 * each:  # it is slower than it was
            clock.note(f"stopped after {epoch + 1} epochs")
            break
    clock.note("trained")
    return net.eval().requires_grad_(False), epochs


def seconds_of(step: Step, once: Any) -> float:
    """Time of a step; the weights do not change."""
    kept = {name: value.clone() for name, value in step.state().items()}
    device = step.plan.device.type
    wait(device)
    started = time.monotonic()
    for _ in range(TIMED_STEPS):
        once()
    wait(device)
    seconds = (time.monotonic() - started) / TIMED_STEPS
    step.restore(kept)
    return seconds


def wait(device: str) -> None:
    """Let a GPU finish what it was told to do."""
    if device == "cuda":
        torch.cuda.synchronize()


def run(
    spec: Spec, data: Path, out: Path, *, device: str, training: float, clock: Clock, command: str
) -> Row:
    """Train and measure; the file is written after each group of methods."""
    train = read_npz(data / TRAININGS[spec.data]).without(spec.recipe.left_out)
    clock.note("data read")
    net, epochs = trained_for(spec, train, device, clock.spent + training, clock)
    about = {"epochs": epochs, "training images": len(train), "stages": clock.stages}
    subject = subject_of(data, spec, net, (), device)
    clock.note("sets made")
    fit = partial(cr.Judge.fit, fast=False, chunk_size=CHUNK)
    row: Row = about | measure(subject, parts=("forwards",), fit=fit, say=clock.say)
    clock.note("forwards measured")
    print(write(row, out, device, command), flush=True)
    fewer = affordable(subject, passes_per_second(net, subject.test), clock)
    row["costly on"] = {name: len(x) for name, x in sets_of(fewer).items()}
    try:
        later = measure(fewer, parts=COSTLY, fit=fit, say=clock.say_or_stop)
    except TimeIsUpError as stopped:
        clock.note(f"stopped after: {stopped}")
        return row
    clock.note("costly methods measured")
    row = merged(row, later)
    print(write(row, out, device, command), flush=True)
    return row


def passes_per_second(net: nn.Module, x: Tensor) -> float:
    """Forwards and backwards by the input of one image each."""
    clf, some = cr.Classifier(net), x[:CHUNK]
    tops = partial(torch.amax, dim=1)
    output_gradient(clf, some, tops)
    wait(x.device.type)
    started = time.monotonic()
    for _ in range(3):
        output_gradient(clf, some, tops)
    wait(x.device.type)
    return 3 * len(some) / (time.monotonic() - started)


def affordable(subject: Subject, speed: float, clock: Clock) -> Subject:
    """The subject with so many images of each set as costly methods can do in time."""
    passes = COSTLY_PASSES * sum(len(x) for x in sets_of(subject).values())
    share = min(1.0, 0.8 * clock.left * speed / passes)
    clock.note(f"{speed:.0f} passes/s: costly methods on {max(share, 0):.0%} of the images")
    return subject if share == 1 else smaller(subject, share)


def smaller(subject: Subject, share: float) -> Subject:
    """The first images of each set."""

    def some(x: Tensor) -> Tensor:
        return x[: max(LEAST, int(share * len(x)))]

    sets = {
        name: {kind: some(x) for kind, x in getattr(subject, name).items()}
        for name in ("far", "near", "damaged", "attacked")
    }
    return replace(subject, test=some(subject.test), labels=some(subject.labels), **sets)


def spec_of(kind: str) -> Spec:
    """The network on CIFAR-10 of that kind."""
    found = {spec.kind: spec for spec in SPECS if spec.data == "CIFAR-10"}
    if kind not in found:
        message = f"expected one of {sorted(found)}, got {kind!r}"
        raise argparse.ArgumentTypeError(message)
    return found[kind]


def bounded(plan: Plan, count: int, steps: int) -> Plan:
    """The plan with fewer attacked images and steps, and without minimum-norm attacks."""
    return replace(plan, search=None, count=min(plan.count, count), steps=min(plan.steps, steps))


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--network", type=spec_of, default="DenseNet169")
    add("--data", type=Path, required=True)
    add("--out", type=Path, required=True)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--training", type=float, default=120.0, help="seconds; default %(default)s")
    add("--seconds", type=float, default=240.0, help="in all; default %(default)s")
    add("--attacked", type=int, default=300, help="images per attack; default %(default)s")
    add("--steps", type=int, default=30, help="of an attack; default %(default)s")
    given = parser.parse_args(arguments)
    clock = Clock(given.seconds)
    spec = replace(given.network, plan=bounded(given.network.plan, given.attacked, given.steps))
    command = (
        f"python -m experiments.broad.timed --network '{spec.kind}' --training {given.training:g} "
        f"--seconds {given.seconds:g} --attacked {given.attacked} --steps {given.steps}"
    )
    run(spec, given.data, given.out, device=given.device, training=given.training, clock=clock,
        command=command)  # fmt: skip


if __name__ == "__main__":
    main()
