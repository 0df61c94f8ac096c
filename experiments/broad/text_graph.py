"""Networks that tell the section of a package from its description, or from its neighbours as well.

The list of packages is real: see `packages.py`. The graph network has sections of its own, and so
have the networks that confirm: none of their sentences was read by one that chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn

from experiments.broad.packages import (
    Packages,
    dependency_lines,
    dropped,
    hashed,
    made_up_packages,
    neighbour_means,
    read_packages,
    rows_of,
    sentences_of,
)
from experiments.broad.subject import Role, Subject

TEXT = ("python", "games", "science", "sound", "fonts", "doc", "net", "javascript")
TEXT_LEFT_OUT = ("editors", "electronics")
GRAPH = ("admin", "x11", "text", "graphics", "web", "math", "gnome", "mail")
GRAPH_LEFT_OUT = ("video", "database")

NEW_TEXT = ("perl", "haskell", "java", "php", "utils", "libs", "devel", "gnu-r")
NEW_TEXT_LEFT_OUT = ("tex", "hamradio")
NEW_GRAPH = ("rust", "golang", "ruby", "lisp", "ocaml", "misc", "localization", "interpreters")
NEW_GRAPH_LEFT_OUT = ("kde", "cli-mono")

LENGTH = 12  # words of a sentence; nearly all have fewer
SPARE = 64  # numbers that the words outside the vocabulary share, by their checksum

Encode = Callable[[list[list[str]]], Tensor]


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    most: int = 1100
    ordinary: int = 300
    test: int = 1500
    strange: int = 500
    dim: int = 48
    epochs: int = 12


@dataclass(frozen=True, eq=False)
class Rows:
    """Numbers of packages that share neither a source nor a sentence, and their classes."""

    train: list[int]
    ordinary: list[int]
    test: list[int]
    left_out: list[int]
    labels: dict[str, Tensor]


class Block(nn.Module):
    """Attention between words, then two linear layers, each added to what came in."""

    def __init__(self, dim: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.project, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.wide = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.project(self.first(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
        x = x + self.drop(self.out((weights @ value).transpose(1, 2).flatten(2)))
        return x + self.drop(self.wide(self.second(x)))


class Transformer(nn.Module):
    """Two blocks over word embeddings (n, words, dim), their mean, and a linear layer.

    The input are floats, not word numbers, so that an input can be moved. The positions are added
    here. There is no mask: a place without a word holds zeros, which the network learned to read.
    So its outputs are smooth in all of its inputs.
    """

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.positions = nn.Parameter(0.1 * torch.randn(LENGTH, dim))
        self.blocks = nn.Sequential(nn.Dropout(0.2), Block(dim), Block(dim), nn.LayerNorm(dim))
        self.last = nn.Linear(dim, classes)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.blocks(x + self.positions).mean(1))
        return out


class WordConvolutions(nn.Module):
    """Convolutions over three, four and five words, and the largest of each (Kim, 2014)."""

    def __init__(self, dim: int, classes: int, width: int = 48) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Conv1d(dim, width, size, padding=2) for size in (3, 4, 5))
        self.drop, self.last = nn.Dropout(0.5), nn.Linear(3 * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        found = [part(x.mT).relu().amax(2) for part in self.parts]
        out: Tensor = self.last(self.drop(torch.cat(found, 1)))
        return out


class Neighbours(nn.Module):
    """A GraphSAGE network of one hop, for a node's features and the mean of its neighbours' ones.

    The input (n, 2 * dim) holds both side by side. The means are computed beforehand, from the
    whole graph, because a node is then one row of numbers as any other input. So a node moves
    together with the mean, and not with each neighbour by itself. Messages travel one hop only.
    """

    def __init__(self, dim: int, classes: int, hidden: int = 64) -> None:
        super().__init__()
        self.own, self.around = nn.Linear(dim, hidden), nn.Linear(dim, hidden, bias=False)
        self.wide = nn.Sequential(nn.ReLU(), nn.Dropout(0.5), nn.Linear(hidden, hidden), nn.ReLU())
        self.last = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        own, around = x.chunk(2, dim=1)
        out: Tensor = self.last(self.wide(self.own(own) + self.around(around)))
        return out


READERS: dict[str, Callable[[int, int], nn.Module]] = {
    "transformer": Transformer, "word convolutions": WordConvolutions,
}  # fmt: skip


def text_and_graph(
    listing: Path | None, *, small: bool = False, only: Role | None = None
) -> Iterator[Subject]:
    """A transformer and a perceptron on descriptions, and a graph network on dependencies.

    Args:
        listing: what `apt-cache dumpavail` printed; not read if `small`.
        small: made-up packages and a few steps of training, for tests.
        only: those that choose, or those that confirm.
    """
    sizes = Sizes(ordinary=100, test=60, strange=40, dim=16, epochs=4) if small else Sizes()
    if small:
        sections = TEXT + TEXT_LEFT_OUT + NEW_TEXT + NEW_TEXT_LEFT_OUT
        packages = made_up_packages(sections + NEW_GRAPH + NEW_GRAPH_LEFT_OUT, each=30)
    elif listing is None:
        raise ValueError("listing is needed: the file that `apt-cache dumpavail > FILE` writes")
    else:
        packages = read_packages(listing)
    if only != "confirm":
        rows = _rows(packages, TEXT, TEXT_LEFT_OUT, sizes)
        if not small:
            yield _reader(packages, rows, sizes, "transformer", "choose")
            yield _graph(packages, GRAPH, GRAPH_LEFT_OUT, sizes, "choose")
        yield _bag_of_words(packages, rows, sizes)
    if only != "choose":
        rows = _rows(packages, NEW_TEXT, NEW_TEXT_LEFT_OUT, sizes)
        yield _reader(packages, rows, sizes, "word convolutions", "confirm")
        yield _graph(packages, NEW_GRAPH, NEW_GRAPH_LEFT_OUT, sizes, "confirm")


def _reader(packages: Packages, rows: Rows, sizes: Sizes, kind: str, role: Role) -> Subject:
    """A network that reads words in their order."""
    sentences = sentences_of(packages, rows.train)
    numbers = _vocabulary(sentences)
    torch.manual_seed(0)
    embedding = nn.Embedding(len(numbers) + SPARE + 1, sizes.dim, padding_idx=0)
    net = READERS[kind](sizes.dim, len(TEXT))
    tokens = _tokens(sentences, numbers)
    _train(nn.Sequential(embedding, net), tokens, rows.labels["train"], sizes.epochs, 1e-3)
    table = embedding.weight.detach()
    return _of_sentences(
        packages, rows, sizes, net, lambda given: table[_tokens(given, numbers)],
        about=(f"packages, {kind}", f"text {kind}", role),
    )  # fmt: skip


def _bag_of_words(packages: Packages, rows: Rows, sizes: Sizes) -> Subject:
    train = hashed(sentences_of(packages, rows.train), 512)
    inverse = (len(train) / (1 + (train > 0).sum(0))).log() + 1

    def encode(given: list[list[str]]) -> Tensor:
        return nn.functional.normalize(hashed(given, 512) * inverse)

    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(512, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, len(TEXT)))
    inputs = nn.functional.normalize(train * inverse)
    _train(net, inputs, rows.labels["train"], sizes.epochs, 2e-3)
    return _of_sentences(
        packages, rows, sizes, net, encode,
        about=("packages, bag of words", "perceptron", "choose"),
    )  # fmt: skip


def _graph(
    packages: Packages,
    sections: tuple[str, ...],
    left_out: tuple[str, ...],
    sizes: Sizes,
    role: Role,
) -> Subject:
    """A network that reads a package and its neighbours; the two have their own sections."""
    rows = _rows(packages, sections, left_out, sizes)
    features = _normal(sentences_of(packages, list(range(len(packages)))))
    means = neighbour_means(packages, features)

    def encode(which: list[int], own: Tensor | None = None) -> Tensor:
        return torch.cat([features[which] if own is None else own, means[which]], 1)

    torch.manual_seed(2)
    net = Neighbours(features.shape[1], len(sections))
    _train(net, encode(rows.train), rows.labels["train"], 2 * sizes.epochs, 2e-3)
    test, draw = encode(rows.test), np.random.default_rng(5)
    damaged = _normal([dropped(words, draw) for words in sentences_of(packages, rows.test)])
    return Subject(
        "packages, graph network" + (", other sections" if role == "confirm" else ""),
        "graph network", "package dependencies", role, net,
        encode(rows.ordinary), rows.labels["ordinary"], test, rows.labels["test"],
        far={**_noise(test, sizes), "features of another node": _swapped(test, rows, sizes)},
        near={"left-out sections": encode(rows.left_out)},
        damaged={"words dropped": encode(rows.test, damaged)},
    )  # fmt: skip


def _of_sentences(
    packages: Packages,
    rows: Rows,
    sizes: Sizes,
    net: nn.Module,
    encode: Encode,
    *,
    about: tuple[str, str, Role],
) -> Subject:
    """A network that reads sentences, and strange sentences for it."""
    name, kind, role = about
    draw, test = np.random.default_rng(4), sentences_of(packages, rows.test)
    inputs, some = encode(test), test[: sizes.strange]
    words = sorted({word for line in sentences_of(packages, rows.train) for word in line})
    strange = {
        "random words": encode([draw.choice(words, len(line)).tolist() for line in some]),
        "one word repeated": encode([[str(draw.choice(line))] * LENGTH for line in some]),
        "dependency lines": encode(dependency_lines(packages, sizes.strange, LENGTH, draw)),
    }
    damaged = {"words dropped": encode([dropped(line, draw) for line in test])}
    if inputs.ndim == 3:  # a bag of words has no order
        damaged["words shuffled"] = encode([draw.permutation(line).tolist() for line in test])
    return Subject(
        name, kind, "package descriptions", role, net,
        encode(sentences_of(packages, rows.ordinary)), rows.labels["ordinary"],
        inputs, rows.labels["test"], far={**_noise(inputs, sizes), **strange},
        near={"left-out sections": encode(sentences_of(packages, rows.left_out))}, damaged=damaged,
    )  # fmt: skip


def _rows(
    packages: Packages, sections: tuple[str, ...], left_out: tuple[str, ...], sizes: Sizes
) -> Rows:
    """Disjoint packages to train on, to fit a Judge on, and to test."""
    chosen = rows_of(packages, sections + left_out, sizes.most, seed=0)
    known = [row for row in chosen if packages.sections[row] in sections]
    last = sizes.ordinary + sizes.test
    parts = known[last:], known[: sizes.ordinary], known[sizes.ordinary : last]
    labels = {
        name: torch.tensor([sections.index(packages.sections[row]) for row in part])
        for name, part in zip(("train", "ordinary", "test"), parts, strict=True)
    }
    others = [row for row in chosen if packages.sections[row] in left_out]
    return Rows(*parts, others[: sizes.strange], labels)


def _normal(sentences: list[list[str]]) -> Tensor:
    """Features of nodes: 128 hashed words, of length one."""
    return nn.functional.normalize(hashed(sentences, 128))


def _vocabulary(sentences: list[list[str]]) -> dict[str, int]:
    """Numbers of the words that occur three times or more, after the spare ones."""
    words, counts = np.unique([word for line in sentences for word in line], return_counts=True)
    return {word: SPARE + 1 + k for k, word in enumerate(words[counts >= 3].tolist())}


def _tokens(sentences: list[list[str]], numbers: dict[str, int]) -> Tensor:
    """Numbers of the words (n, words). Others share the spare numbers; 0 is no word."""
    found = torch.zeros(len(sentences), LENGTH, dtype=torch.long)
    for row, line in enumerate(sentences):
        for place, word in enumerate(line[:LENGTH]):
            found[row, place] = numbers.get(word, 1 + crc32(word.encode()) % SPARE)
    return found


def _train(net: nn.Module, inputs: Tensor, labels: Tensor, epochs: int, rate: float) -> None:
    """Train with AdamW on batches of 64 with a falling rate; leave it in evaluation mode."""
    steps = epochs * -(-len(inputs) // 64)
    optimiser = torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 3 * rate, total_steps=steps)
    net.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(inputs)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(inputs[batch]), labels[batch]).backward()
            optimiser.step()
            schedule.step()
    net.eval().requires_grad_(False)


def _noise(inputs: Tensor, sizes: Sizes) -> dict[str, Tensor]:
    """Uniform values between the least and the largest of all, and columns in another order."""
    g = torch.Generator().manual_seed(6)
    some = inputs[: sizes.strange]
    low, high = inputs.min(), inputs.max()
    orders = torch.rand(some.shape, generator=g).argsort(-1)
    return {
        "uniform noise": low + (high - low) * torch.rand(some.shape, generator=g),
        "shuffled columns": some.gather(-1, orders),
    }


def _swapped(test: Tensor, rows: Rows, sizes: Sizes) -> Tensor:
    """The features of one node among the neighbours of another, of another section."""
    labels, (own, around) = rows.labels["test"], test.chunk(2, dim=1)
    g = torch.Generator().manual_seed(7)
    scores = torch.rand(len(labels), len(labels), generator=g)
    partners = (scores * (labels[:, None] != labels)).argmax(1)
    return torch.cat([own[partners], around], 1)[: sizes.strange]
