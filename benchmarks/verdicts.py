"""How reliable verdicts are, and which outliers they find.

    python -m benchmarks.verdicts

Twenty times, a random half of the images fits a judge, which judges the other half and several
kinds of outliers, with two outlier scores. The networks are the embedded one, and two with a single
hidden layer, trained here in seconds: on the digits of scikit-learn (needs the extra 'sklearn'),
and on a table of which a column is given in another unit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import torch

import credibly as cr
from credibly.data.sample import load_sample
from experiments.evidence_sets import inverted, noise, shuffled

GAMMA, HALVES, FOREIGN = 200.0, 20, 500
TRUSTED = "verdict trust | network right on these"


def judges(
    clf: cr.Classifier, profile: cr.Profile, outlier: str
) -> Iterator[tuple[cr.Judge, torch.Tensor]]:
    """Yield judges fitted on random halves, and the rows of the other half."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(HALVES):
        known, new = torch.randperm(len(profile), generator=generator).chunk(2)
        yield cr.Judge.fit(clf, profile[known], outlier=outlier), new


def print_reliability(clf: cr.Classifier, profile: cr.Profile, right: torch.Tensor) -> None:
    """Print per verdict how often it was given, and how often the network was right then."""
    found: Counter[object] = Counter()
    for judge, new in judges(clf, profile, "shift"):
        for verdict, hit in zip(judge.judge(profile[new]), right[new].tolist(), strict=True):
            found[verdict] += 1
            found[verdict, "right"] += hit
    total = sum(found[verdict] for verdict in cr.Verdict)
    for verdict in cr.Verdict:
        if found[verdict]:
            share, hits = found[verdict] / total, found[verdict, "right"] / found[verdict]
            print(f"{verdict.value}: {share:.1%} of the images, right on {hits:.1%} of them")


def print_found(
    clf: cr.Classifier, profile: cr.Profile, foreign: Mapping[str, cr.Profile], outlier: str
) -> None:
    """Print per kind of input the share of each verdict."""
    found: Counter[tuple[str, cr.Verdict]] = Counter()
    for judge, new in judges(clf, profile, outlier):
        for kind, inputs in {"ordinary images": profile[new], **foreign}.items():
            found.update((kind, verdict) for verdict in judge.judge(inputs))
    print(f"\n| outliers by `{outlier}` | {' | '.join(verdict.value for verdict in cr.Verdict)} |")
    for kind in ("ordinary images", *foreign):
        counts = [found[kind, verdict] for verdict in cr.Verdict]
        print(f"| {kind} | {' | '.join(f'{count / sum(counts):.1%}' for count in counts)} |")


def foreign(
    clf: cr.Classifier, images: torch.Tensor, gamma: float, *, flat: bool
) -> dict[str, cr.Profile]:
    """Return profiles of outliers, in the shape of these images."""
    kinds = {
        "uniform noise": noise(images, uniform=True, seed=0),
        "Gaussian noise": noise(images, uniform=False, seed=0),
        "inverted images": inverted(images),
        "shuffled patches": shuffled(images),
    }
    return {
        kind: cr.credibility(clf, x.flatten(1) if flat else x, gamma=gamma)
        for kind, x in kinds.items()
    }


def of_the_embedded_network() -> None:
    """Judge a residual network on images of clothes."""
    sample = load_sample()
    clf = cr.Classifier(sample.net, classes=sample.classes)
    profile = cr.credibility(clf, sample.images, gamma=GAMMA)
    print_reliability(clf, profile, profile.credence.argmax(1) == sample.labels)
    others = foreign(clf, sample.images[:FOREIGN], GAMMA, flat=False)
    for outlier in ("shift", "gain"):
        print_found(clf, profile, others, outlier)


def of_one_hidden_layer() -> None:
    """Judge a network on images of digits; half of them train it."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier

    x, y = load_digits(return_X_y=True)
    train, held_out, labels, truth = train_test_split(x / 16, y, test_size=0.5, random_state=0)
    net = MLPClassifier((64,), max_iter=1000, random_state=0).fit(train, labels)
    clf = cr.from_sklearn(net)
    images = torch.tensor(held_out)
    gamma = cr.auto_gamma(clf, images)
    profile = cr.credibility(clf, images, gamma=gamma)
    print(
        f"\ndigits, one hidden layer, right on {net.score(held_out, truth):.1%}; gamma {gamma:.3g}"
    )
    others = foreign(clf, images[:FOREIGN].reshape(-1, 1, 8, 8), gamma, flat=True)
    for outlier in ("shift", "gain"):
        print_found(clf, profile, others, outlier)


def of_a_table() -> None:
    """Judge a network on measurements of cells, also in wrong units; half of them train it."""
    from sklearn.datasets import load_breast_cancer
    from sklearn.model_selection import train_test_split
    from sklearn.neural_network import MLPClassifier
    from sklearn.preprocessing import StandardScaler

    x, y = load_breast_cancer(return_X_y=True)
    train, held_out, labels, truth = train_test_split(x, y, test_size=0.5, random_state=0)
    scaler = StandardScaler().fit(train)
    net = MLPClassifier((32,), max_iter=1000, random_state=0).fit(scaler.transform(train), labels)
    clf = cr.from_sklearn(net)
    gamma = cr.auto_gamma(clf, scaler.transform(held_out))
    print(f"\ncells, one hidden layer; gamma {gamma:.3g}\n| rows | network right | {TRUSTED} |")
    ordinary = cr.credibility(clf, torch.tensor(scaler.transform(held_out)), gamma=gamma)
    for kind, column, factor in (
        ("ordinary", 0, 1), ("area times 100", 3, 100), ("radius times 10", 0, 10),
    ):  # fmt: skip
        other = held_out.copy()
        other[:, column] *= factor
        profile = cr.credibility(clf, torch.tensor(scaler.transform(other)), gamma=gamma)
        right = profile.credence.argmax(1) == torch.tensor(truth)
        trusted, hits = 0, 0
        for judge, new in judges(clf, ordinary, "shift"):
            verdicts = judge.judge(profile[new])
            trust = torch.tensor([verdict is cr.Verdict.TRUST for verdict in verdicts])
            trusted, hits = trusted + int(trust.sum()), hits + int((trust & right[new]).sum())
        share = trusted / (HALVES * (len(ordinary) - (len(ordinary) + 1) // 2))
        print(
            f"| {kind} | {float(right.double().mean()):.1%} | {share:.1%} | {hits / trusted:.1%} |"
        )


def main() -> None:
    """Print how reliable verdicts are, and a table per network and outlier score."""
    of_the_embedded_network()
    of_one_hidden_layer()
    of_a_table()


if __name__ == "__main__":
    main()
