"""Models of transformers from small configurations: nothing is downloaded."""

import pytest
import torch

import credibly as cr
from tests.reference.soundness import check_profile

tf = pytest.importorskip("transformers")
tf.logging.set_verbosity_error()

SMALL = {"vocab_size": 40, "id2label": {0: "no", 1: "maybe", 2: "yes"}}
KINDS = {
    "distilbert": lambda: tf.DistilBertForSequenceClassification(
        tf.DistilBertConfig(dim=16, n_heads=2, n_layers=2, hidden_dim=24, **SMALL)
    ),
    "bert": lambda: tf.BertForSequenceClassification(
        tf.BertConfig(
            hidden_size=16, num_attention_heads=2, num_hidden_layers=2, intermediate_size=24,
            hidden_act="gelu", **SMALL,
        )
    ),
    "gpt2": lambda: tf.GPT2ForSequenceClassification(
        tf.GPT2Config(
            n_embd=16, n_head=2, n_layer=2, n_positions=16, pad_token_id=0,
            bos_token_id=1, eos_token_id=1, **SMALL,
        )
    ),
}  # fmt: skip


def ready(model, *, spread=1.0):
    model = model.double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                size = spread / parameter.shape[-1] ** 0.5
                drawn = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(size * drawn)
    return model


def texts(lengths=(8, 5, 3), *, longest=8, types=False):
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(2, 40, (len(lengths), longest), generator=generator)
    mask = (torch.arange(longest)[None] < torch.tensor(lengths)[:, None]).long()
    found = {"input_ids": tokens * mask, "attention_mask": mask}
    if types:
        found["token_type_ids"] = mask * (torch.arange(longest)[None] > 1)
    return tf.BatchEncoding(found)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_neither_moves_nor_counts(kind):
    clf, x = cr.from_transformers(ready(KINDS[kind]())), texts()
    profile = check_profile(clf, x, smooth=False)
    moved = cr.token_movement(profile)
    assert moved.shape == (3, 8)
    assert bool((moved[x["attention_mask"] == 0] == 0).all())
    assert bool((moved[x["attention_mask"] == 1] > 0).any())
    assert torch.allclose(moved.square().sum(1), profile.risk)
    assert clf.classes == ("no", "maybe", "yes")


@pytest.mark.parametrize("kind", KINDS)
def test_more_padding_is_the_same_text(kind):
    clf = cr.from_transformers(ready(KINDS[kind]()))
    exact = cr.solvers.LBFGS(tolerance=1e-9, steps=2000)
    short, long = (
        cr.credibility(clf, texts((3,), longest=3).data, gamma=30.0, solver=exact),
        cr.credibility(clf, _padded(texts((3,), longest=3), 4), gamma=30.0, solver=exact),
    )
    assert torch.allclose(short.credibility, long.credibility, atol=1e-5)
    assert cr.auto_gamma(clf, texts((3,), longest=3)) == pytest.approx(
        cr.auto_gamma(clf, _padded(texts((3,), longest=3), 4)), rel=1e-9
    )


def _padded(x, more):
    return {key: torch.nn.functional.pad(value, (0, more)) for key, value in x.items()}


def test_what_is_solved_is_the_model_itself():
    model, x = ready(KINDS["bert"]()), texts(types=True)
    profile = cr.credibility(cr.from_transformers(model), x, gamma="auto")
    with torch.no_grad():
        before = model(**x).logits.log_softmax(1)
        ids = {key: value for key, value in x.items() if key != "input_ids"}
        after = model(inputs_embeds=profile.perturbed, **ids).logits.log_softmax(1)
    assert torch.allclose(profile.credence, before)
    assert torch.allclose(profile.credibility, after)
    # token types reach the model: without them it is another text
    other = cr.credibility(cr.from_transformers(model), texts(), gamma=profile.gamma)
    assert not torch.allclose(other.credence, profile.credence)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_derivatives_through_a_profile(attention):
    model = ready(KINDS["bert"](), spread=1.5)
    model.set_attn_implementation(attention)
    clf, x = cr.from_transformers(model), texts((4, 4), longest=4)
    bound = cr.bind(clf, x)
    exact = cr.solvers.LBFGS(tolerance=1e-10, steps=3000)
    profile = cr.credibility(bound, gamma=40.0, solver=exact)
    tracked = bound.values.clone().requires_grad_(True)
    found = cr.attached_credibility(bound, profile, x0=tracked, products=100, accuracy=1e-10)
    found[:, 0].sum().backward()
    v = torch.randn(tracked.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    class Moved(torch.nn.Module):  # the same model, with its words moved by s v
        def __init__(self, s):
            super().__init__()
            self.model, self.values = model, bound.values + s * v

        def forward(self, embedded):
            return self.model(inputs_embeds=embedded, attention_mask=x["attention_mask"]).logits

    ends = []
    for s in (1e-4, -1e-4):
        moved = Moved(s)
        ends.append(cr.credibility(cr.Classifier(moved), moved.values, gamma=40.0, solver=exact))
    expected = (ends[0].credibility - ends[1].credibility)[:, 0] / 2e-4
    assert torch.allclose((tracked.grad * v).flatten(1).sum(1), expected, rtol=1e-3, atol=1e-5)


def vision():
    return ready(
        tf.ViTForImageClassification(
            tf.ViTConfig(
                image_size=8, patch_size=4, num_channels=1, hidden_size=16, num_hidden_layers=2,
                num_attention_heads=2, intermediate_size=24, num_labels=3,
            )
        ),
        spread=2.0,
    )  # fmt: skip


def test_images_move_at_their_pixels():
    x = {"pixel_values": torch.rand(3, 1, 8, 8, dtype=torch.float64)}
    profile = check_profile(cr.from_transformers(vision()), x, smooth=False)
    assert profile.perturbed.shape == (3, 1, 8, 8)
    inside = cr.from_transformers(vision(), space=cr.Space(bounds=(0.0, 1.0)))
    held = cr.credibility(inside, x, gamma="auto")
    assert float(held.perturbed.min()) >= 0.0
    assert float(held.perturbed.max()) <= 1.0


def test_another_module_can_be_named():
    clf = cr.from_transformers(vision(), module="vit.embeddings.patch_embeddings")
    profile = cr.credibility(clf, {"pixel_values": torch.rand(2, 1, 8, 8).double()}, gamma="auto")
    assert profile.perturbed.shape == (2, 4, 16)


def test_words_of_an_encoder_and_a_decoder():
    """Their shared embedding is no part that runs once; the encoder's own is."""
    config = tf.BartConfig(
        d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, pad_token_id=1,
        eos_token_id=2, bos_token_id=0, decoder_start_token_id=2, forced_eos_token_id=2, **SMALL,
    )  # fmt: skip
    model = ready(tf.BartForSequenceClassification(config), spread=2.0)
    x = {"input_ids": torch.tensor([[5, 6, 7, 2], [9, 3, 8, 2]])}
    with pytest.raises(cr.errors.InvalidArgumentError, match="a submodule that runs once"):
        cr.credibility(cr.from_transformers(model), x, gamma="auto")
    clf = cr.from_transformers(model, module="model.encoder.embed_tokens")
    assert check_profile(clf, x, smooth=False).perturbed.shape == (2, 4, 16)


def test_several_labels_at_once():
    model = ready(KINDS["bert"]())
    model.config.problem_type = "multi_label_classification"
    assert repr(cr.from_transformers(model).loss).startswith("Logistic")
    with torch.no_grad():
        expected = torch.nn.functional.logsigmoid(model(**texts()).logits)
    profile = cr.credibility(cr.from_transformers(model), texts(), gamma="auto")
    assert torch.allclose(profile.credence, expected)


def test_a_model_that_does_not_know_its_padding_is_refused():
    config = tf.GPT2Config(n_embd=8, n_head=1, n_layer=1, bos_token_id=1, eos_token_id=1, **SMALL)
    config.pad_token_id = None
    state = torch.get_rng_state()
    model = tf.GPT2ForSequenceClassification(config)
    state = torch.get_rng_state()
    with pytest.raises(cr.errors.ModelError, match=r"pad_token_id = tokenizer\.pad_token_id"):
        cr.from_transformers(model)
    assert torch.equal(state, torch.get_rng_state())


def test_bad_models_are_refused_in_words():
    with pytest.raises(cr.errors.InvalidArgumentError, match="Load it first"):
        cr.from_transformers("bert-base-uncased")
    with pytest.raises(
        cr.errors.InvalidArgumentError, match="a classification model of transformers"
    ):
        cr.from_transformers(torch.nn.Linear(2, 2))
    with pytest.raises(
        cr.errors.InvalidArgumentError, match=r"got DataParallel.*: model\.module\.$"
    ):
        cr.from_transformers(torch.nn.DataParallel(KINDS["bert"]()))
    with pytest.raises(cr.errors.ModelError, match="does not classify whole inputs"):
        cr.from_transformers(KINDS["bert"]().bert)
    with pytest.raises(cr.errors.ModelError, match="bfloat16"):
        cr.from_transformers(KINDS["bert"]().bfloat16())
    regression = KINDS["bert"]()
    regression.config.problem_type = "regression"
    with pytest.raises(cr.errors.ModelError, match="means regression"):
        cr.from_transformers(regression)
    with pytest.raises(cr.errors.ModelError, match=r"net\.eval\(\)"):
        cr.credibility(cr.from_transformers(KINDS["bert"]().train()), texts(), gamma=1.0)


def test_movement_of_what_is_no_sequence_is_refused():
    profile = cr.credibility(cr.Classifier(lambda x: x), torch.randn(2, 3), gamma=1.0)
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"\(n, T, D\)"):
        cr.token_movement(profile)
