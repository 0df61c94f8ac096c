"""A function is told by its code and its values, and by nothing that changes from run to run."""

import functools
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import credibly as cr
from credibly.io.code_digest import digest_of_callable, words_of_loss
from credibly.model.losses import resolve_loss

SOURCE = """
    import functools, torch
    from torch import nn

    MEAN = torch.tensor([0.5])
    NAMES = {"a", "b", "c", "d"}

    def half(x):
        return x * 0.5

    def prepare(x, *, scale=2.0):
        return half(x - MEAN) / scale if "a" in {"a", "b", "c"} and NAMES else x

    class Norm:
        def __init__(self, std):
            self.std = std
        def __call__(self, x):
            return x / self.std
        def method(self, x):
            return x / self.std

    class Layer(nn.Module):
        def __init__(self, power):
            super().__init__()
            self.power = power
        def forward(self, x):
            return x ** self.power

    def again(x):
        return again(x[1:]) if len(x) else x

    WHAT = {
        "function": prepare,
        "recursive": again,
        "lambda": lambda x: [half(part) for part in x],
        "partial": functools.partial(prepare, scale=3.0),
        "object": Norm(0.3),
        "method": Norm(0.3).method,
        "layer": nn.Sequential(Layer(2.0), nn.Flatten()),
        "builtin": torch.relu,
    }
"""


def made(source):
    names = {"__name__": "made_up"}
    exec(compile(textwrap.dedent(source), "made_up.py", "exec"), names)  # noqa: S102  # from above
    return {name: digest_of_callable(value) for name, value in names["WHAT"].items()}


def test_another_process_finds_the_same():
    script = textwrap.dedent(SOURCE) + textwrap.dedent("""
        from credibly.io.code_digest import digest_of_callable
        print({name: digest_of_callable(value) for name, value in WHAT.items()})
    """)
    found = [
        subprocess.run(  # noqa: S603  # our own code
            [sys.executable, "-c", script],
            capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert found[0] == found[1]
    assert "prepare " in found[0]


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("0.5])", "0.6])", {"function", "partial"}),
        ("x * 0.5", "x * 0.25", {"function", "partial", "lambda"}),
        ("scale=2.0", "scale=2.5", {"function", "partial"}),
        ("x - MEAN", "x + MEAN", {"function", "partial"}),
        ("scale=3.0", "scale=3.5", {"partial"}),
        ("Norm(0.3)", "Norm(torch.tensor(0.3))", {"object", "method"}),
        ("Layer(2.0)", "Layer(3.0)", {"layer"}),
        ("x ** self.power", "x * self.power", {"layer"}),
        ("x[1:]", "x[2:]", {"recursive"}),
        ("# nothing", "# at all", set()),
    ],
)
def test_a_change_is_seen_where_it_matters(old, new, changed):
    before, after = made(SOURCE), made(SOURCE.replace(old, new))
    assert {name for name in before if before[name] != after[name]} == changed


def test_values_from_around_are_seen():
    def divided(by):
        return lambda x: x / by

    values = [
        2.0, 3, torch.tensor(2.0), torch.tensor([2.0]), np.float32(2), np.ones(2), [1, 2], {"a": 1},
        torch.float32, torch.float64, slice(1, 2), nn.Linear(2, 2), nn.Linear(2, 2), (1, (2, 3)),
    ]  # fmt: skip
    digests = [digest_of_callable(divided(value)) for value in values]
    assert len(set(digests)) == len(values)
    assert digests == [digest_of_callable(divided(value)) for value in values]


def test_odd_callables_have_a_digest():
    def unset():
        return later  # noqa: F821

    def loop():
        holder.append(holder)
        return lambda: holder

    holder = []
    odd = [unset, loop(), functools.partial(print), len, int, torch.nn.functional.relu, np.exp]
    assert len({digest_of_callable(one) for one in odd}) == len(odd)


def test_a_name_that_has_no_value_yet():
    def outer():
        def inner(x):
            return x + later

        found = digest_of_callable(inner)
        later = 1
        return found, digest_of_callable(inner), later

    before, after, _ = outer()
    assert before != after


class Listed(torch.nn.Module):
    """As normalisations of images are often written: numbers in lists, used by a helper."""

    def __init__(self, mean):
        super().__init__()
        self.mean = mean

    def forward(self, x):
        return x - torch.as_tensor(self.mean)


@dataclass(slots=True)
class Slotted:
    mean: float

    def __call__(self, x):
        return x - self.mean


@pytest.mark.parametrize("made_of", [lambda v: Listed([v]), lambda v: Listed({"r": v}),
                                     lambda v: Listed(torch.tensor([v])),
                                     lambda v: Listed(np.array([v])), Slotted])  # fmt: skip
def test_values_count_wherever_they_are_kept(made_of):
    first, again, other = (digest_of_callable(made_of(v)) for v in (0.5, 0.5, 0.25))
    assert first == again != other


def test_every_method_of_an_object_counts():
    first, second = (
        type("Maker", (), {"__call__": lambda s, x: s.helped(x), "helped": helper})()
        for helper in (lambda _, x: x + 1, lambda _, x: x + 2)
    )
    assert digest_of_callable(first) != digest_of_callable(second)


def test_losses_of_ones_own_are_told_apart_by_their_code():
    def scaled(times):
        return cr.losses.CustomLoss(lambda outputs: times * torch.nn.functional.softplus(-outputs))

    assert words_of_loss(scaled(1.0)) == words_of_loss(scaled(1.0)) != words_of_loss(scaled(2.0))
    assert words_of_loss(resolve_loss("hinge")) == "Hinge(kinked=True)"
