"""Which verdicts on hotel reviews to trust, and which word they depend on.

A small transformer learns reviews made from a grammar with negation and "but"; nothing is
downloaded. Run it with `python -m examples.text_transformer --out FOLDER`.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import credibly as cr
from credibly.decide.scores import predicted_ratio, softmax_ratio
from credibly.model.derivatives import losses_and_pull

CLASSES = ("negative", "neutral", "positive")
THINGS = ["soup", "room", "staff", "bed", "view", "coffee", "waiter", "garden", "breakfast", "bill"]
WORDS = {
    "negative": ["bad", "awful", "cold", "rude", "dirty", "stale", "noisy", "dull"],
    "neutral": ["open", "blue", "upstairs", "square", "local", "small", "wooden", "italian"],
    "positive": ["good", "great", "lovely", "friendly", "clean", "fresh", "quiet", "charming"],
}
NOT = ["not", "never", "hardly"]
STRESS = ["very", "really", "quite", "so"]
PAD, START = "[pad]", "[start]"
VOCABULARY = [
    PAD, START, "the", "was", "and", "but", *NOT, *STRESS, *THINGS,
    *(word for words in WORDS.values() for word in words),
]  # fmt: skip
DECISIVE = {*NOT, "but", *(word for words in WORDS.values() for word in words)}
OPPOSITE = {"negative": "positive", "neutral": "neutral", "positive": "negative"}


def clause(draw: random.Random) -> tuple[list[str], str]:
    """Make a clause "the THING was ADJECTIVE", sometimes negated or stressed."""
    verdict = draw.choice(CLASSES)
    words = ["the", draw.choice(THINGS), "was"]
    negated = draw.random() < 0.4
    if negated:
        words.append(draw.choice(NOT))
    if draw.random() < 0.3:
        words.append(draw.choice(STRESS))
    words.append(draw.choice(WORDS[verdict]))
    return words, OPPOSITE[verdict] if negated else verdict


def review(draw: random.Random) -> tuple[list[str], str]:
    """Make one clause or two; the one after "but" counts, "and" joins equal verdicts."""
    first, verdict = clause(draw)
    if draw.random() < 0.4:
        return first, verdict
    second, other = clause(draw)
    return [*first, "and" if other == verdict else "but", *second], other


def encode(reviews: list[list[str]]) -> dict[str, Tensor]:
    """Return token ids and the attention mask, as a tokenizer does."""
    longest = 1 + max(len(words) for words in reviews)
    rows = [[START, *words] + [PAD] * (longest - 1 - len(words)) for words in reviews]
    numbers = {word: number for number, word in enumerate(VOCABULARY)}
    tokens = torch.tensor([[numbers[word] for word in row] for row in rows])
    return {"input_ids": tokens, "attention_mask": (tokens != 0).long()}


def make_reviews(count: int, seed: int) -> tuple[list[list[str]], Tensor]:
    """Make different reviews, and return them with the numbers of their verdicts."""
    draw = random.Random(seed)  # noqa: S311  # sentences, not secrets
    pairs: dict[str, tuple[list[str], str]] = {}
    while len(pairs) < count:  # all different
        words, verdict = review(draw)
        pairs[" ".join(words)] = words, verdict
    return [words for words, _ in pairs.values()], torch.tensor(
        [CLASSES.index(verdict) for _, verdict in pairs.values()]
    )


def trained(texts: list[list[str]], labels: Tensor, *, epochs: int) -> Any:
    """Train a DistilBERT of two small layers, and set it to eval mode."""
    import transformers

    torch.manual_seed(0)
    config = transformers.DistilBertConfig(
        vocab_size=len(VOCABULARY), dim=32, n_heads=4, n_layers=2, hidden_dim=64,
        max_position_embeddings=24, id2label=dict(enumerate(CLASSES)), initializer_range=0.1,
        dropout=0.0, attention_dropout=0.0,
    )  # fmt: skip
    model = transformers.DistilBertForSequenceClassification(config).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x = encode(texts)
    for _ in range(epochs):
        for rows in torch.randperm(len(labels)).split(64):
            part = {name: values[rows] for name, values in x.items()}
            loss = torch.nn.functional.cross_entropy(model(**part).logits, labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model.eval()


def top_words(weight: Tensor, texts: list[list[str]]) -> list[str]:
    """Return the word of each review with the largest weight (n, T), without the start token."""
    rows = weight[:, 1:]
    return [words[int(row[: len(words)].argmax())] for words, row in zip(texts, rows, strict=True)]


def sensitivity(clf: cr.Classifier, x: dict[str, Tensor]) -> Tensor:
    """Return the norm of the gradient of the squared losses at each word (n, T), in one pass."""
    words = cr.bind(clf, x)
    pull = losses_and_pull(words, words.start, lambda losses: 2 * losses).pull
    return pull.reshape(words.values.shape).norm(dim=2)


def decisive(words: list[str]) -> float:
    """Return the share of words that state, negate or select a verdict."""
    return sum(word in DECISIVE for word in words) / max(len(words), 1)


def table(profile: cr.Profile, texts: list[list[str]], labels: Tensor, shown: list[int]) -> None:
    """Print some reviews: truth, prediction, softmax, score, word."""
    words, score = top_words(cr.token_movement(profile), texts), predicted_ratio(profile)
    probability, predicted = profile.credence.exp().max(1)
    print(f"{'truth':<9}{'predicted':<10}{'softmax':>8}{'score':>7}  {'most moved':<11}review")
    for n in shown:
        print(
            f"{CLASSES[labels[n]]:<9}{CLASSES[predicted[n]]:<10}{probability[n]:>8.1%}"
            f"{score[n]:>7.2f}  {words[n]:<11}{' '.join(texts[n])}"
        )


def swaps(clf: cr.Classifier, words: list[str], moved: str, truth: int) -> str:
    """Describe the predictions with another noun in place of the one that moved most."""
    place = max(n for n, word in enumerate(words) if word == moved)
    others = [[*words[:place], noun, *words[place + 1 :]] for noun in THINGS if noun != moved]
    with torch.no_grad():
        right = clf.run(encode(others)).argmax(1) == truth
    return f"another noun for {moved!r}: right {int(right.sum())} times of {len(others)}"


def picture(profile: cr.Profile, texts: list[list[str]], labels: Tensor, shown: list[int]) -> Any:
    """Draw every word of some reviews, shaded by how far it moved."""
    from credibly.plot import style

    figure, axes = style.panels(1, width=10.0, height=0.55 * len(shown) + 1.0)
    moved, panel = cr.token_movement(profile), axes[0]
    score, predicted = predicted_ratio(profile), profile.credence.argmax(1)
    for line, n in enumerate(shown):
        row = moved[n, 1 : 1 + len(texts[n])]
        for place, (word, share) in enumerate(zip(texts[n], row / row.max(), strict=True)):
            colour = (*_rgb(style.PROFILE), 0.75 * float(share))
            panel.add_patch(_box(place, line, colour))
            panel.text(place + 0.5, line + 0.5, word, ha="center", va="center", fontsize=9)
        right = predicted[n] == labels[n]
        verdict = CLASSES[predicted[n]] + ("" if right else f"  (truth: {CLASSES[labels[n]]})")
        panel.text(
            -0.2, line + 0.5, f"{verdict}   {float(score[n]):+.2f}", ha="right", va="center",
            fontsize=9, color=style.INK if right else style.SOFTMAX,
        )  # fmt: skip
    panel.set_xlim(-3.6, max(len(texts[n]) for n in shown) + 0.1)
    panel.set_ylim(len(shown) + 0.1, -0.1)
    panel.set_axis_off()
    return figure


def _rgb(colour: str) -> tuple[float, float, float]:
    from matplotlib.colors import to_rgb

    return to_rgb(colour)


def _box(place: float, line: float, colour: tuple[float, ...]) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((place + 0.03, line + 0.12), 0.94, 0.76, color=colour, linewidth=0)


def main(out: Path | None = None, *, small: bool = False) -> dict[str, float]:
    """Train, solve, print, draw, and return the printed numbers."""
    model = trained(*make_reviews(200 if small else 330, seed=1), epochs=3 if small else 30)
    texts, labels = make_reviews(24 if small else 400, seed=2)
    clf, x = cr.from_transformers(model), encode(texts)
    profile = cr.credibility(clf, x, gamma="auto")
    right = profile.credence.argmax(1) == labels
    shown = _chosen(profile, right)
    table(profile, texts, labels, shown)
    words = top_words(cr.token_movement(profile), texts)
    found = {
        "accuracy": float(right.double().mean()),
        "softmax ranks right above wrong": cr.metrics.failure_auroc(softmax_ratio(profile), right),
        "profile ranks right above wrong": cr.metrics.failure_auroc(
            predicted_ratio(profile), right
        ),
        "most moved word is decisive": decisive(words),
        "  where the prediction is right": decisive(
            [w for w, r in zip(words, right, strict=True) if r]
        ),
        "  where it is wrong": decisive([w for w, r in zip(words, right, strict=True) if not r]),
        "word of largest gradient is decisive": decisive(top_words(sensitivity(clf, x), texts)),
        "a random word is decisive": sum(map(decisive, texts)) / len(texts),
    }
    for n in shown:
        if not right[n] and words[n] in THINGS:
            print(
                f"wrong: {' '.join(texts[n])}\n  {swaps(clf, texts[n], words[n], int(labels[n]))}"
            )
    print(f"\n{len(texts)} reviews, gamma {profile.gamma:.4g}")
    for name, value in found.items():
        print(f"{name:<38}{value:>7.1%}")
    if out is not None:
        figure = picture(profile, texts, labels, shown)
        _title(figure, found)
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / "gallery-text.png", dpi=130, facecolor="white")
    return found


def _title(figure: Any, found: dict[str, float]) -> None:
    figure.suptitle(
        'The most moved word is an adjective, a negation or "but" in '
        f"{found['most moved word is decisive']:.0%} of the reviews "
        f"(a random word: {found['a random word is decisive']:.0%}).\n"
        "Shade: how far x+ moves a word. Left: prediction and score; wrong ones in orange.",
        fontsize=10, x=0.01, ha="left",
    )  # fmt: skip


def _chosen(profile: cr.Profile, right: Tensor) -> list[int]:
    """Choose right ones, most and least trusted, and wrong ones with the highest softmax."""
    good = [n for n in predicted_ratio(profile).argsort().tolist() if bool(right[n])]
    wrong = [n for n in softmax_ratio(profile).argsort().tolist() if not bool(right[n])]
    return [*good[-3:][::-1], *good[:3][::-1], *wrong[-3:][::-1]]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="folder for the picture")
    main(parser.parse_args().out)
