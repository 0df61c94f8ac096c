"""The examples of text, features and sequences run, and say what they computed."""

import pytest

from examples import features_of_images


def test_words_of_a_transformer(tmp_path, capsys):
    pytest.importorskip("transformers")
    from examples import text_transformer

    found = text_transformer.main(tmp_path, small=True)
    printed = capsys.readouterr().out
    assert f"{found['accuracy']:.1%}" in printed
    assert (tmp_path / "gallery-text.png").stat().st_size > 10_000


def test_the_grammar_means_what_it_says():
    pytest.importorskip("transformers")
    from examples.text_transformer import CLASSES, NOT, OPPOSITE, WORDS, encode, make_reviews

    texts, labels = make_reviews(200, seed=5)
    verdicts = {word: verdict for verdict, words in WORDS.items() for word in words}
    for words, label in zip(texts, labels.tolist(), strict=True):
        clause = words[words.index("but") + 1 :] if "but" in words else words
        verdict = verdicts[clause[-1]]
        last = clause[len(clause) - clause[::-1].index("the") - 1 :]
        turned = any(word in NOT for word in last)
        assert CLASSES[label] == (OPPOSITE[verdict] if turned else verdict)
    x = encode(texts[:3])
    assert x["attention_mask"].sum(1).tolist() == [1 + len(words) for words in texts[:3]]


def test_features_of_images(tmp_path, capsys):
    rows = features_of_images.main(tmp_path, small=True)
    assert [row.features for row in rows] == [0, 784, 3136, 1568, 1024]
    assert "12 images" in capsys.readouterr().out
    assert (tmp_path / "gallery-features.png").stat().st_size > 10_000
