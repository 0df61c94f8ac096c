"""The overhead of solving, chunk by chunk: libraries prepare for each batch size.

    python -m benchmarks.chunks                        # the embedded network
    python -m benchmarks.chunks --model resnet18.safetensors --data images.npz --chunk 2500 \
        --images 10000 --device cuda

Each line is one chunk of images: seconds of its solve, and of forward and backward alone at the
same batch sizes, run after it. The first chunk includes everything that is done only once.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

import credibly as cr
from benchmarks import models

GAMMA = 200.0


def seconds(work: Callable[[], object], device: str) -> float:
    """Return how long something takes, until the device has finished it."""
    _wait(device)
    begin = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - begin


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def solved(net: nn.Module, x: Tensor, device: str) -> tuple[float, list[int]]:
    """Return the seconds of one solve, and the batch size of every call of the network."""
    sizes: list[int] = []

    def counted(inputs: Tensor) -> Tensor:
        sizes.append(len(inputs))
        logits: Tensor = net(inputs)
        return logits

    clf = cr.Classifier(counted)

    def work() -> cr.Profile:
        return cr.credibility(clf, x, gamma=GAMMA, chunk_size=len(x), progress=False)

    return seconds(work, device), sizes


def bare(net: nn.Module, x: Tensor, sizes: list[int]) -> None:
    """Run forward and backward alone."""
    for size in sizes:
        inputs = x[:size].detach().requires_grad_(True)
        torch.autograd.grad(net(inputs).logsumexp(1).sum(), inputs)


def main() -> None:
    """Print a line per chunk."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="safetensors of a network; default: embedded")
    parser.add_argument("--data", type=Path, help=".npz with uint8 `images`, or an IDX file")
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--chunk", type=int, default=100)
    parser.add_argument("--space", choices=("pixel", "normalised"), default="pixel")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = True
    subject = models.load(given.model, given.data, given.images, given.device)
    net, images = subject.in_space(given.space)
    for number, x in enumerate(images.split(given.chunk)):
        took, sizes = solved(net, x, given.device)
        alone = seconds(lambda x=x, sizes=sizes: bare(net, x, sizes), given.device)
        print(f"chunk {number}: {len(x)} images, {sum(sizes) / len(x):.0f} passes per image, "
              f"{len(sizes)} calls in {len(set(sizes))} sizes; {took:.2f} s, bare {alone:.2f} s, "
              f"{sum(sizes) / took:.0f} and {sum(sizes) / alone:.0f} passes/s",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
