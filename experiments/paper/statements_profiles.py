"""Claims about trained networks and their profiles, without attacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.paper.adaptive import spaces
from experiments.paper.claims import Claim, Statement, Value

Records = Mapping[str, Mapping[str, Any]]
Found = Mapping[str, Any]


def accuracy_claims(records: Records) -> list[Claim]:
    """Return the claims about the accuracy of the networks, on all test images."""
    cases = (
        ("ResNet18, CIFAR-10", "profiles-cifar10", 0, 0.93),
        ("DenseNet169, CIFAR-10", "profiles-cifar10", 1, 0.94),
        ("ResNet18, Fashion-MNIST", "profiles-fashion-mnist", 0, 0.92),
    )
    claims = []
    for words, name, place, paper in cases:
        readings = {}
        if name in records:
            networks = next(iter(records[name]["results"].values()))["networks"]
            value = list(networks.values())[place]["accuracy"]
            least = round(paper - 0.015, 3)
            readings["test set"] = [Statement("accuracy", value, least)]
        short, number = f"accuracy {words}", f"{100 * paper:.0f} %"
        claims.append(
            Claim(short, f"{words}: accuracy (at most 1.5 points less)", number, readings)
        )
    return claims


def compromise_claims(records: Records) -> list[Claim]:
    """Return the claims of the experiments' Figure 1."""
    results = {
        f"{space}, {images}": numbers
        for space, sets in records.get("compromise", {}).get("results", {}).items()
        for images, numbers in sets.items()
    }
    steps = {reading: numbers["differences"].items() for reading, numbers in results.items()}
    falls = {
        reading: [Statement(f"risk, {k}", v["risk"], most=0, strict=True) for k, v in each]
        for reading, each in steps.items()
    }
    grows = {
        reading: [Statement(f"|c+|², {k}", v["norm"], least=0, strict=True) for k, v in each]
        for reading, each in steps.items()
    }
    holds = {
        reading: [
            Statement(f"share, gamma {g}", [v["trade-off holds"]] * 3, least=1)
            for g, v in numbers["gammas"].items()
        ]
        for reading, numbers in results.items()
    }
    return [
        Claim("risk falls", "perturbations shrink as gamma grows", "falls", falls),
        Claim("norm grows", "|c+|² grows with gamma", "grows", grows),
        Claim(
            "trade-off",
            "the trade-off inequality holds (our solvers see to it; see the next claim)",
            "all images",
            holds,
        ),
    ]


def divergence_claims(records: Records) -> list[Claim]:
    """Return the claim about Algorithm 1: each start and step size, at its greatest length."""
    readings = {}
    for space, numbers in spaces(records.get("readings", {"results": {}})).items():
        rows = [row for row in numbers["rows"] if "diverged" in row]
        longest = max((row["passes"] for row in rows), default=0)
        readings[space] = [
            Statement(f"share, {row['name']}", [row["diverged"]] * 3, most=0)
            for row in rows
            if row["passes"] == longest and row["name"].endswith("last")
        ]
    return [
        Claim("never diverged", "Algorithm 1 diverged in no instance (we call it so where it ends "
              "above the F of x0, against the trade-off inequality; share of images)", "none",
              {space: found for space, found in readings.items() if found}),
    ]  # fmt: skip


def profile_claims(records: Records) -> list[Claim]:
    """Return the claims about how much profiles change, by network and by data set."""
    cifar = records.get("profiles-cifar10", {}).get("results", {})
    fashion = records.get("profiles-fashion-mnist", {}).get("results", {})
    change = {}
    for space, numbers in cifar.items():
        for gap in numbers["differences"].values():
            ratio = gap["normalised change, second over first"]
            change[space] = [
                Statement("change, ResNet less DenseNet", gap["normalised change"], 0, strict=True),
                Statement("change, DenseNet over ResNet", ratio, most=0.5),
            ]
    noisier, robust = {}, {}
    for space in set(cifar) & set(fashion):
        for what, column, into in (
            ("spread", "spread after", noisier),
            ("change", "normalised change", robust),
        ):
            left, right = (_smallest(side[space], 0)[column] for side in (fashion, cifar))
            words = f"{what}, Fashion-MNIST less CIFAR-10"
            into[space] = [Statement(words, _less(left, right), 0, strict=True)]
    return [
        *_single_profiles(records),
        Claim("profiles change", "c+ of the ResNet differs considerably from c0, of the DenseNet "
              "little (at most half as much)", "much / little", change),
        Claim("noisier", "profiles on Fashion-MNIST are much noisier than on CIFAR-10 (noisier at "
              "all)", "much noisier",
              dict(sorted(noisier.items()))),
        Claim("less robust", "profiles on Fashion-MNIST change more than on CIFAR-10, so that this "
              "network is less robust", "less robust", dict(sorted(robust.items()))),
    ]  # fmt: skip


def _single_profiles(records: Records) -> list[Claim]:
    """Return the claims about the profiles of one network, or of both."""
    record = records.get("profiles-cifar10", {"results": {}})
    strong, certain, alike = {}, {}, {}
    for space, numbers in spaces(record).items():
        both = [_smallest(numbers, place) for place in (0, 1)]
        strong[space] = [
            Statement(f"median of the second value of c0, {name}",
                      found["second value before, 50%"], most=0.5)
            for name, found in zip(("ResNet", "DenseNet"), both, strict=True)
        ]  # fmt: skip
        certain[space] = [Statement("5 % quantile of the second value of c+, DenseNet",
                                    both[1]["second value after, 5%"], most=0.5)]  # fmt: skip
    fashion = spaces(records.get("profiles-fashion-mnist", {"results": {}}))
    also = {
        space: [Statement("median of the second value of c0",
                          _smallest(numbers, 0)["second value before, 50%"], most=0.5)]
        for space, numbers in fashion.items()
    }  # fmt: skip
    counts = list(record.get("parameters", {}).values())
    if len(counts) == 2:
        alike["counted"] = [
            Statement("DenseNet over ResNet", [counts[1] / counts[0]] * 3, 2 / 3, 3 / 2)
        ]
    return [
        Claim("one strong component", "the outputs typically have a single strong component (the "
              "second at most half way up, stretched to [0, 1])", "typically", strong),
        Claim("one strong component, Fashion-MNIST", "Fashion-MNIST: the same", "typically", also),
        Claim("certainty kept", "the DenseNet keeps a good amount of certainty on some samples (of "
              "5 %, the second at most half way up)", "some", certain),
        Claim("as many parameters", "both networks have similarly many parameters (two thirds to "
              "three halves)", "similar", alike),
    ]  # fmt: skip


def _smallest(numbers: Found, place: int) -> Any:
    """Return the numbers of a network in its smallest set."""
    sets = list(numbers["networks"].values())[place]
    return next(iter(sets.values()))


def _less(left: Value, right: Value) -> Value:
    """Subtract two independent numbers; the squares of half-widths add."""
    known = [[v for v in side if v is not None] for side in (left, right)]
    if any(len(side) < 3 for side in known):
        return [None] * 3
    (a, a_low, a_high), (b, b_low, b_high) = known
    down = ((a - a_low) ** 2 + (b_high - b) ** 2) ** 0.5
    up = ((a_high - a) ** 2 + (b - b_low) ** 2) ** 0.5
    return [a - b, a - b - down, a - b + up]
