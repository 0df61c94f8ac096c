"""Networks of many kinds as they are: each solved, certified and held to finite differences."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

import credibly as cr
from credibly.model.derivatives import losses_and_pull, losses_only
from tests.reference.soundness import check_profile


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def ready(net, *, spread=1.0):
    """Weights that make the outputs differ between inputs, in float64 and eval mode."""
    net = net.double().eval()
    with torch.no_grad():
        for number, parameter in enumerate(net.parameters()):
            if parameter.dim() > 1:
                width = parameter[0].numel() ** 0.5
                parameter.copy_(spread / width * drawn(*parameter.shape, seed=number))
    return net


class SmallViT(nn.Module):
    """Patches, a class token, positions and torch's own encoder."""

    def __init__(self, *, size=8, patch=4, width=16, classes=3):
        super().__init__()
        self.patches = nn.Conv2d(1, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(0.1 * torch.ones(1, 1 + (size // patch) ** 2, width))
        layer = nn.TransformerEncoderLayer(
            width, 2, 32, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        found = self.patches(x).flatten(2).mT
        found = torch.cat([self.token.expand(len(x), -1, -1), found], dim=1) + self.place
        return self.head(self.encoder(found)[:, 0])


class SequenceNet(nn.Module):
    """A recurrent network on sequences of numbers, with their lengths where they differ."""

    def __init__(self, kind, *, features=3, width=8, classes=3, packed=False):
        super().__init__()
        self.body = kind(features, width, batch_first=True, bidirectional=packed)
        self.head = nn.Linear(width * (2 if packed else 1), classes)
        self.packed = packed

    def forward(self, x, lengths=None):
        if self.packed:
            x = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        _, last = self.body(x)
        last = last[0] if isinstance(last, tuple) else last
        return self.head(torch.cat(list(last), dim=1))


class WordNet(nn.Module):
    """Token numbers, an embedding, and a recurrent or a convolutional body."""

    def __init__(self, body, *, words=20, width=6, classes=3, padding=0):
        super().__init__()
        self.embedding = nn.Embedding(words, width, padding_idx=padding)
        self.body = body
        self.head = nn.Linear(8, classes)

    def forward(self, tokens, lengths=None):
        found = self.embedding(tokens)
        if isinstance(self.body, nn.Conv1d):
            return self.head(functional.gelu(self.body(found.mT)).mean(2))
        if lengths is not None:
            found = pack_padded_sequence(
                found, lengths.cpu(), batch_first=True, enforce_sorted=False
            )
        _, last = self.body(found)
        return self.head((last[0] if isinstance(last, tuple) else last)[-1])


class WeightStandardisedConv(nn.Conv2d):
    def forward(self, x):
        spread, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True)
        weight = (self.weight - mean) / (spread + 1e-5).sqrt()
        return functional.conv2d(x, weight, self.bias, self.stride, self.padding)


BODIES = {
    "gru": lambda: nn.GRU(6, 8, batch_first=True),
    "lstm": lambda: nn.LSTM(6, 8, num_layers=2, batch_first=True),
    "convolution": lambda: nn.Conv1d(6, 8, 3, padding=1),
}


@pytest.mark.parametrize("frozen", [False, True])
def test_a_vision_transformer_of_torchs_own_layers(frozen):
    net = ready(SmallViT(), spread=2.0).requires_grad_(not frozen)
    images = drawn(4, 1, 8, 8, seed=9)
    profile = check_profile(cr.Classifier(net), images)
    # the fast path of eval mode has no backward, and must neither be taken nor be switched off
    assert torch.backends.mha.get_fastpath_enabled()
    with torch.no_grad():
        assert torch.allclose(-functional.log_softmax(net(images), 1), -profile.credence)


def test_attention_is_differentiated_twice_where_that_is_needed():
    net, images = ready(SmallViT(), spread=2.0), drawn(2, 1, 8, 8, seed=3)
    clf = cr.Classifier(net)
    exact = cr.solvers.LBFGS(tolerance=1e-10, steps=2000)
    gamma = cr.auto_gamma(clf, images)
    profile = cr.credibility(clf, images, gamma=gamma, solver=exact)
    tracked = images.clone().requires_grad_(True)
    found = cr.attached_credibility(clf, profile, x0=tracked, products=80, accuracy=1e-10)
    found[:, 1].sum().backward()
    v = drawn(2, 1, 8, 8, seed=4)
    moved = [
        cr.credibility(clf, images + s * v, gamma=gamma, solver=exact).credibility[:, 1]
        for s in (1e-4, -1e-4)
    ]
    expected = (moved[0] - moved[1]) / 2e-4
    assert torch.allclose((tracked.grad * v).flatten(1).sum(1), expected, rtol=1e-3, atol=1e-5)


class PaddedEncoder(nn.Module):
    """Pools over all positions, padded ones, too: there torch's fast path has other values."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, 3)

    def forward(self, x, padded):
        return self.head(self.encoder(x, src_key_padding_mask=padded).mean(1))


def test_a_forward_alone_has_the_losses_that_the_gradient_belongs_to():
    net, x = ready(PaddedEncoder()), drawn(3, 6, 8)
    padded = torch.arange(6)[None] >= torch.tensor([6, 4, 3])[:, None]
    bound = cr.bind(cr.Classifier(net, unpack=True), {"x": x, "padded": padded})
    alone = losses_only(bound, bound.start)
    together = losses_and_pull(bound, bound.start, torch.clone).losses
    assert torch.allclose(alone, together, atol=1e-10)
    check_profile(cr.Classifier(net, unpack=True), {"x": x, "padded": padded}, smooth=False)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_networks_on_sequences(kind):
    check_profile(cr.Classifier(ready(SequenceNet(kind), spread=1.5)), drawn(4, 7, 3, seed=2))


def test_packed_sequences_leave_what_is_beyond_their_length():
    net, x = ready(SequenceNet(nn.GRU, packed=True), spread=1.5), drawn(4, 7, 3, seed=2)
    lengths = torch.tensor([7, 3, 5, 1])
    clf = cr.Classifier(net, unpack=True)
    profile = check_profile(clf, (x, lengths))
    beyond = torch.arange(7)[None] >= lengths[:, None]
    assert torch.equal(profile.perturbed[beyond], x[beyond])
    # the order of a batch says nothing about a sample
    turned = cr.credibility(clf, (x.flip(0), lengths.flip(0)), gamma=profile.gamma)
    assert torch.allclose(turned.credibility.flip(0), profile.credibility, atol=1e-5)


@pytest.mark.parametrize("body", BODIES)
def test_words_through_an_embedding(body):
    net = ready(WordNet(BODIES[body]()), spread=2.0)
    tokens = torch.randint(1, 20, (4, 5), generator=torch.Generator().manual_seed(1))
    profile = check_profile(cr.Classifier(net, module="embedding"), tokens)
    assert profile.perturbed.shape == (4, 5, 6)
    assert torch.equal(profile.x0, net.embedding(tokens).detach())


def test_words_with_lengths_in_a_mapping():
    net = ready(WordNet(BODIES["gru"]()), spread=2.0)
    lengths = torch.tensor([5, 2, 3])
    tokens = torch.randint(1, 20, (3, 5), generator=torch.Generator().manual_seed(1))
    tokens[torch.arange(5)[None] >= lengths[:, None]] = 0
    clf = cr.Classifier(net, module="embedding", unpack=True)
    profile = check_profile(clf, {"tokens": tokens, "lengths": lengths})
    moved = (profile.perturbed - profile.x0).abs().sum(2)
    assert bool((moved[tokens == 0] == 0).all())
    assert bool((moved[tokens != 0] > 0).all())
    # shorter padding, the same profile
    short = cr.credibility(
        clf, {"tokens": tokens[1:, :3], "lengths": lengths[1:]}, gamma=profile.gamma
    )
    assert torch.allclose(short.credibility, profile.credibility[1:], atol=1e-5)


def test_gauss_newton_follows_the_samples_it_still_works_on():
    """Where some samples refuse a step and others take it, the classifier must follow the rows."""
    net = ready(WordNet(BODIES["lstm"]()), spread=4.0)
    tokens = torch.randint(1, 20, (6, 5), generator=torch.Generator().manual_seed(1))
    clf = cr.Classifier(net, module="embedding")
    gamma = cr.auto_gamma(clf, tokens)
    few = cr.solvers.GaussNewton(steps=12)
    other = cr.credibility(clf, tokens, gamma=gamma, solver=few)
    assert bool(other.usable.all())
    alone = cr.credibility(clf, tokens[:1], gamma=gamma, solver=few)
    assert torch.allclose(other.credibility[:1], alone.credibility, atol=1e-6)


def test_networks_without_batch_norm():
    net = nn.Sequential(
        WeightStandardisedConv(2, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(),
        WeightStandardisedConv(8, 8, 3, stride=2), nn.LayerNorm([8, 2, 2]), nn.GELU(),
        nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip
    check_profile(cr.Classifier(ready(net, spread=2.0)), drawn(4, 2, 6, 6))


def test_preprocessing_that_resizes_and_normalises_colours():
    net = ready(
        nn.Sequential(nn.Flatten(), nn.Linear(75, 16), nn.Tanh(), nn.Linear(16, 3)), spread=3
    )
    mean = torch.tensor([0.5, 0.4, 0.3], dtype=torch.float64)[:, None, None]

    def prepared(x):
        resized = functional.interpolate(x, size=(5, 5), mode="bilinear", antialias=True)
        return (resized - mean) / 0.25

    images = drawn(3, 3, 8, 8).sigmoid()
    clf = cr.Classifier(net, preprocess=prepared)
    profile = check_profile(clf, images)
    assert profile.perturbed.shape == images.shape


def test_sound_through_a_spectrogram():
    """Complex numbers inside are fine: risk is measured on the real samples of the wave."""
    net = ready(nn.Sequential(nn.Flatten(), nn.Linear(9 * 9, 8), nn.Tanh(), nn.Linear(8, 3)))
    window = torch.hann_window(16, dtype=torch.float64)

    def spectrogram(wave):
        spectrum = torch.stft(wave, 16, hop_length=8, window=window, return_complex=True)
        return (spectrum.abs().square() + 1e-3).log()

    wave = torch.sin(torch.arange(64, dtype=torch.float64) * torch.tensor([[0.3], [0.7], [1.1]]))
    check_profile(cr.Classifier(net, preprocess=spectrogram), wave + 0.1 * drawn(3, 64))


def test_complex_numbers_inside_a_network():
    matrix = torch.complex(drawn(5, 12), drawn(5, 12, seed=1)) / 12**0.5
    head = drawn(3, 5, seed=2)

    def net(x):
        return (torch.fft.fft(x.to(torch.complex128)) @ matrix.T).abs().log1p() @ head.T

    check_profile(cr.Classifier(net), drawn(3, 12, seed=5))


def test_a_module_in_half_precision_is_refused():
    net = WordNet(BODIES["convolution"]()).to(torch.bfloat16).eval()
    with pytest.raises(cr.errors.ModelError, match=r"bfloat16.*net.float\(\)"):
        cr.credibility(cr.Classifier(net, module="embedding"), torch.ones(2, 4).long(), gamma=1.0)


def test_a_model_that_fails_on_its_inputs_says_so():
    net = ready(WordNet(BODIES["gru"]()))
    with pytest.raises(
        cr.errors.ModelError, match="the model failed on the inputs with IndexError"
    ):
        cr.credibility(cr.Classifier(net, module="embedding"), torch.full((2, 4), 99), gamma=1.0)
