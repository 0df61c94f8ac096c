"""Train the network that credibly ships, and write it with its 1000 test images.

    python -m experiments.train_sample --data FOLDER_OF_IDX_FILES

Every choice below was fixed before the test set was used. The accuracy on the 10,000 test images is
measured once, at the end, and written into the metadata of the weights.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from credibly.data.small_resnet import Block, SmallResNet
from credibly.io.files import save_tensors
from experiments import fashion_mnist

OUT = Path(__file__).parents[1] / "src" / "credibly" / "data" / "embedded"
SAMPLE_SIZE = 1000


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Flip half of the images and shift each by up to two pixels."""
    count = len(images)
    flip = torch.rand(count, generator=generator) < 0.5
    images = torch.where(flip[:, None, None, None], images.flip(3), images)
    padded = nn.functional.pad(images, (2, 2, 2, 2))
    shift = torch.randint(0, 5, (2, count), generator=generator)
    rows = torch.arange(28)[None, :] + shift[0][:, None]
    columns = torch.arange(28)[None, :] + shift[1][:, None]
    which = torch.arange(count)[:, None, None]
    return padded[which, 0, rows[:, :, None], columns[:, None, :]].unsqueeze(1)


def train(net: nn.Module, images: Tensor, labels: Tensor, *, epochs: int, seed: int) -> None:
    """SGD with Nesterov momentum and one cycle of the learning rate."""
    generator = torch.Generator().manual_seed(seed)
    batch = 250
    steps = len(images) // batch
    optimizer = torch.optim.SGD(
        net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.2, total_steps=epochs * steps, pct_start=0.2
    )
    objective = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        start, running = time.perf_counter(), 0.0
        net.train()
        for chosen in torch.randperm(len(images), generator=generator).split(batch):
            x = augment(images[chosen], generator).to(memory_format=torch.channels_last)
            loss = objective(net(x), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            running += loss.item() / steps
        seconds = time.perf_counter() - start
        print(f"epoch {epoch + 1}/{epochs}: loss {running:.4f}, {seconds:.0f} s", flush=True)


def fold_norms(net: SmallResNet) -> dict[str, Tensor]:
    """Return the weights of the same function without batch norms."""
    net.eval()
    net.stem = fuse_conv_bn_eval(net.stem, net.stem_norm)
    net.stem_norm = nn.Identity()
    for block in net.blocks:
        assert isinstance(block, Block)
        block.conv1 = fuse_conv_bn_eval(block.conv1, block.norm1)
        block.conv2 = fuse_conv_bn_eval(block.conv2, block.norm2)
        block.norm1 = block.norm2 = nn.Identity()
    return {name: value.contiguous() for name, value in net.state_dict().items()}


@torch.no_grad()
def accuracy(net: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Return the share of images whose largest logit is that of the label."""
    hits = [
        (net(x).argmax(1) == y).float()
        for x, y in zip(images.split(500), labels.split(500), strict=True)
    ]
    return torch.cat(hits).mean().item()


def main() -> None:
    """Train, fold, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    settings = parser.parse_args()

    torch.manual_seed(settings.seed)
    known, test = (fashion_mnist.load(settings.data, part) for part in ("train", "test"))
    net = SmallResNet(width=settings.width, norm=nn.BatchNorm2d)
    net = net.to(memory_format=torch.channels_last)
    train(net, known.pixels, known.labels, epochs=settings.epochs, seed=settings.seed)
    weights = fold_norms(net)
    folded = SmallResNet(width=settings.width).eval()
    folded.load_state_dict(weights)
    measured = accuracy(folded, test.pixels, test.labels)
    print(f"test accuracy {measured:.4f}")

    settings.out.mkdir(parents=True, exist_ok=True)
    facts = {
        "architecture": json.dumps({"name": "SmallResNet", "width": settings.width}),
        "data": "Fashion-MNIST, pixels in [0, 1], no normalisation",
        "recipe": f"experiments/train_sample.py, {settings.epochs} epochs, seed {settings.seed}",
        "test_accuracy": f"{measured:.4f}",
    }
    save_tensors(weights, settings.out / "weights.safetensors", metadata=facts)
    sample = test[:SAMPLE_SIZE].as_bytes()
    np.savez_compressed(
        settings.out / "images.npz",
        images=sample.pixels[:, 0].numpy(),
        labels=sample.labels.byte().numpy(),
    )


if __name__ == "__main__":
    main()
