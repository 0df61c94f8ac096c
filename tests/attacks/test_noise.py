"""Random numbers of a sample against SplitMix64 in whole numbers of Python."""

import math

import pytest
import torch

from credibly.attacks.noise import normal, sample_keys, uniform, with_stream

WORD = 1 << 64
GOLDEN = 0x9E3779B97F4A7C15


def mixed(z):
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014) on an unsigned number."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def shares(key, count):
    """The first numbers of the generator that starts with this state, in [0, 1)."""
    return [(mixed((key + n * GOLDEN) % WORD) >> 11) / 2**53 for n in range(1, count + 1)]


def test_the_loop_is_the_published_generator():
    # the first numbers that others print for the state 1234567
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [mixed(1234567 + n * GOLDEN & (WORD - 1)) for n in (1, 2, 3)] == published


@pytest.mark.parametrize("key", [0, 1234567, 2**63 - 1, -1, -(2**63)])
def test_uniform_numbers_are_those_of_the_generator(key):
    found = uniform(torch.tensor([key]), (2, 3))
    assert found.shape == (1, 2, 3)
    assert found.flatten().tolist() == shares(key % WORD, 6)
    drawn = shares(key % WORD, 6)
    by_hand = [
        math.sqrt(-2 * math.log1p(-u)) * math.cos(2 * math.pi * v)
        for u, v in zip(drawn[:3], drawn[3:], strict=True)
    ]
    assert normal(torch.tensor([key]), (3,))[0].tolist() == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize("seed", [0, 7, 2**63, 2**64 + 7])
def test_keys_come_from_the_values_and_the_seed(seed):
    x = torch.tensor([[0.0, 1.5], [-0.0, 1.5], [1.5, 0.0]], dtype=torch.float64)
    keys = sample_keys(x, seed)
    for row, key in zip(x + 0.0, keys.tolist(), strict=True):
        bits = row.clone().view(torch.int64).tolist()
        total = sum(mixed((b + n * GOLDEN) % WORD) for n, b in enumerate(bits))
        assert key % WORD == mixed((total + seed) % WORD)
    assert keys[0] == keys[1]  # minus zero is zero
    assert keys[0] != keys[2]  # the same values elsewhere are another sample
    assert torch.equal(sample_keys(x.float(), seed), keys)
    for stream in (0, 3):
        found = with_stream(keys, stream).tolist()
        expected = [mixed((key + (stream + 1) * GOLDEN) % WORD) for key in keys.tolist()]
        assert [value % WORD for value in found] == expected
