"""How the price grows: with images, classes, the size of the input and the depth of the network."""

from __future__ import annotations

import importlib.util

import torch
from torch import Tensor, nn

import credibly as cr
from benchmarks.speed_meter import Bench, one_pass
from credibly.model.bind import bind
from credibly.model.checks import check_model
from credibly.model.derivatives import undisturbed

DESCENT = cr.solvers.FixedDescent()
GAMMA = 1e4


def growth(bench: Bench, net: nn.Module, known: Tensor, x: Tensor) -> None:
    """One image alone, and more and more of them."""
    judges = {use: cr.Judge.fit(net, known, profile=use) for use in ("never", "always")}
    for size in (1, 8, 64, *(size for size in (256, 1024) if size <= len(x))):
        part = x[:size]
        for use, judge in judges.items():
            judge(part, keep=False)  # a recorder sees the sizes of the pieces
            seconds = bench.seconds(lambda part=part, judge=judge: judge(part, keep=False))
            bench.note(f"Judge, profile={use!r}, batch {size}", seconds, size)


def stack(*, depth: int = 6, width: int = 32, classes: int = 10) -> nn.Module:
    """A plain convolutional network with random weights."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]
    return nn.Sequential(*layers).eval()


def shapes(bench: Bench) -> None:
    """Decisions on one kind of network, one property changed at a time."""
    count = 256 if bench.cuda else 4
    cases = {
        **{f"{k} classes": (stack(classes=k), 32) for k in (10, 100, 1000)},
        **{f"{size} x {size} pixels": (stack(), size) for size in (16, 32, 64, 128)},
        **{f"{depth} layers": (stack(depth=depth), 32) for depth in (4, 8, 16, 32)},
    }
    for name, (net, size) in cases.items():
        x = torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(0))
        given, own = x.to(bench.device), net.to(bench.device)
        clf = cr.accelerate(cr.Classifier(own), given[:16])
        bare = bench.seconds(lambda own=own, given=given: one_pass(own, given))
        decide(bench, clf, given, f"decision, {name}", bare)


def decide(
    bench: Bench, clf: cr.Classifier, x: Tensor, name: str, bare: float, *, top: int | None = None
) -> None:
    """A decision-grade profile of all images."""
    work = lambda: cr.credibility(clf, x, gamma=GAMMA, solver=DESCENT, top=top)  # noqa: E731
    work()  # a recorder sees the sizes of the pieces
    bench.note(f"{name}, batch {len(x)}", bench.seconds(work), len(x), bare)


def large(bench: Bench) -> None:
    """Networks of 1000 classes at 224 x 224 pixels, random weights."""
    if importlib.util.find_spec("torchvision") is None:
        print("large networks: torchvision is not here", flush=True)
        return
    from torchvision import models

    x = torch.rand(256, 3, 224, 224, generator=torch.Generator().manual_seed(0)).to(bench.device)
    for name in ("resnet50", "vit_b_16"):
        if not bench.has_time(name, 25):
            return
        net = with_gradients(getattr(models, name)(weights=None).eval()).to(bench.device)
        fast = cr.accelerate(cr.Classifier(net), x[:16])
        print(f"{name}: {'; '.join(fast.notes)}", flush=True)
        for size in (1, 64, 256):
            part = x[:size]
            bare = bench.seconds(lambda part=part, net=net: one_pass(net, part))
            bench.note(f"{name}, bare pass, batch {size}", bare, size)
            half = bench.seconds(lambda part=part, fast=fast: one_pass(fast.draft, part))
            bench.note(f"{name}, bare pass, bfloat16, batch {size}", half, size)
            decide(bench, fast, part, f"{name}, decision", half, top=10)
        checks(bench, cr.Classifier(net), x, name, top=10)


def with_gradients(net: nn.Module) -> nn.Module:
    """The network; a last layer of zeros, as of transformers, gets weights."""
    torch.manual_seed(0)
    for part in net.modules():
        if isinstance(part, nn.Linear) and not bool(part.weight.any()):
            nn.init.normal_(part.weight, std=0.02)
    return net


def checks(
    bench: Bench, clf: cr.Classifier, x: Tensor, name: str, *, top: int | None = None
) -> None:
    """What automatic gamma and the checks of the model cost beside nine passes."""
    variable = bind(clf, x)

    def look() -> None:
        with undisturbed(variable) as own:
            check_model(own)

    passes = 9 * bench.seconds(lambda: one_pass(clf.net, x))  # type: ignore[arg-type]
    for what, work in (
        ("auto_gamma", lambda: cr.auto_gamma(clf, x, top=top)),
        ("checks of the model", look),
    ):
        share = bench.seconds(work) / passes
        words = f"{share:.1%} of nine passes over {len(x)} images"
        bench.say(f"{name}, {what}", share, words)
    for count in sorted({1, min(len(x), 256)}):
        spent = passes_of_gamma(clf, x[:count], top)
        words = f"{spent:.1f} passes for {count} images, {spent / count / 9:.1%} of nine for each"
        bench.say(f"{name}, passes of auto_gamma and its checks, {count} images", spent, words)


def passes_of_gamma(clf: cr.Classifier, x: Tensor, top: int | None) -> float:
    """Passes of the automatic gamma, checks of the model included, counted around the network."""
    seen = [0, 0]

    def counted(x: Tensor) -> Tensor:
        seen[0] += len(x)
        logits: Tensor = clf.net(x)
        if logits.requires_grad:
            logits.register_hook(lambda slope: seen.__setitem__(1, seen[1] + len(slope)))
        return logits

    cr.auto_gamma(cr.Classifier(counted), x, top=top)
    return seen[0] / 3 + seen[1] * 2 / 3
