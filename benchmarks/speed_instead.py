"""What a user would do instead of a Judge, on the same network and images."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch
from torch import Tensor, nn

import credibly as cr
from benchmarks.speed_meter import Bench, one_forward
from credibly.baselines import ODIN, LastLayerLaplace, TestTimeAugmentation


def instead(bench: Bench, net: nn.Module, known: Tensor, x: Tensor, bare: float) -> None:
    """Baselines of the literature, each timed beside a bare pass."""
    clf, size = cr.Classifier(net), len(x)
    views = tuple(lambda y, k=k: torch.roll(y, k % 5 - 2, dims=3) for k in range(19))

    def forwards(count: int) -> Callable[[], None]:
        def work() -> None:
            for _ in range(count):
                one_forward(net, x)

        return work

    ways: dict[str, Callable[[], object]] = {
        "one forward (softmax, energy)": forwards(1),
        "5-network ensemble": forwards(5),
        "30-sample dropout": forwards(30),
        "20-view augmentation": lambda: TestTimeAugmentation(views=views)(clf, x),
        "ODIN": lambda: ODIN(eps=0.002)(clf, x),
    }
    for name, work in ways.items():
        bench.note(f"{name}, batch {size}", bench.seconds(work), size, bare)
    laplace(bench, clf, known, x, bare)
    if importlib.util.find_spec("foolbox") is not None:
        foolbox(bench, net, x[:200])


def laplace(bench: Bench, clf: cr.Classifier, known: Tensor, x: Tensor, bare: float) -> None:
    """Last-layer Laplace, fitted on the ordinary images."""
    fitted = LastLayerLaplace.fit(clf, known)
    seconds = bench.seconds(lambda: fitted(clf, x))
    bench.note(f"last-layer Laplace, batch {len(x)}", seconds, len(x), bare)


def foolbox(bench: Bench, net: nn.Module, x: Tensor) -> None:
    """Minimum-norm attacks of foolbox: distance to the boundary as a score of trust."""
    import foolbox as fb

    model = fb.PyTorchModel(net, bounds=(0, 1), device=x.device)
    with torch.no_grad():
        labels = net(x).argmax(1)
    for name, attack in (
        ("foolbox DDN", fb.attacks.DDNAttack()),
        ("foolbox DeepFool", fb.attacks.L2DeepFoolAttack()),
    ):
        work = lambda attack=attack: attack(model, x, labels, epsilons=None)  # noqa: E731
        bench.note(f"{name}, batch {len(x)}", bench.once(work), len(x))
