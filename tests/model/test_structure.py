from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch

from credibly.errors import InvalidArgumentError
from credibly.model.structure import as_tensors, leaves, mapped, rows_of, samples_in

Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024


def nested():
    return {
        "image": torch.arange(6.0).reshape(3, 2),
        "text": [torch.tensor([1, 2, 3]), (torch.ones(3, 1), "name")],
        "pair": Pair(torch.zeros(3, 1), np.full((3, 2), 7.0)),
        "rate": 0.5,
        "empty": {},
    }


def test_every_leaf_has_the_path_of_its_keys_and_positions():
    assert [path for path, _ in leaves(nested())] == [
        "image", "text.0", "text.1.0", "text.1.1", "pair.0", "pair.1", "rate",
    ]  # fmt: skip
    alone = torch.ones(2)
    assert [(path, leaf is alone) for path, leaf in leaves(alone)] == [("", True)]


def test_putting_together_gives_the_same_containers():
    x = nested()
    same = mapped(x, lambda _, leaf: leaf)
    assert list(same) == list(x)
    assert isinstance(same["pair"], Pair)
    assert isinstance(same["text"], list)
    assert isinstance(same["text"][1], tuple)
    assert same["text"][1][1] == "name"
    assert same["empty"] == {}
    assert same["image"] is x["image"]
    assert list(mapped(OrderedDict(a=1, b=2), lambda path, leaf: (path, leaf))) == ["a", "b"]


def test_rows_are_chosen_in_every_tensor_and_nowhere_else():
    x = as_tensors(nested())
    for rows, expected in (
        (slice(1, 3), [2, 3]),
        (torch.tensor([2, 0, 0]), [3, 1, 1]),
        (torch.tensor([True, False, True]), [1, 3]),
    ):
        chosen = rows_of(x, rows)
        assert chosen["text"][0].tolist() == expected
        assert len(chosen["pair"].right) == len(expected)
        assert chosen["rate"] == 0.5


def test_arrays_become_tensors_and_integers_stay_integers():
    x = as_tensors((np.arange(4), [np.ones((4, 2), dtype=np.float32)], torch.ones(4, dtype=bool)))
    assert x[0].dtype == torch.long
    assert x[1][0].dtype == torch.float32
    assert x[2].dtype == torch.bool
    assert samples_in(x) == 4


def test_a_read_only_array_is_copied():
    array = np.ones((2, 2))
    array.setflags(write=False)
    assert torch.equal(as_tensors([array])[0], torch.ones(2, 2, dtype=torch.float64))


def test_tensors_come_without_their_graph_and_out_of_inference_mode():
    with torch.inference_mode():
        frozen = torch.ones(2, 3)
        found = as_tensors({"a": frozen, "b": torch.ones(2)})
    assert not found["a"].is_inference()
    assert not found["b"].is_inference()
    assert not as_tensors(torch.ones(2, 1, requires_grad=True)).requires_grad


@pytest.mark.parametrize(
    ("wrong", "argument", "match"),
    [
        ({"a": torch.ones(3), "b": torch.ones(2)}, "x['b']", "expected 3 samples.*got 2"),
        ({"a": torch.tensor(1.0)}, "x['a']", "sample axis first.*single number"),
        ({"a": np.array(["u", "v"])}, "x['a']", "array of numbers.*U1"),
        ([torch.ones(2), np.array([{}, {}])], "x['1']", "array of numbers.*object"),
        ({"a.b": torch.ones(2), "a": {"b": torch.ones(2)}}, "x['a.b']", "tell the parts apart"),
        (
            {"waves": [torch.ones(1, 5), torch.ones(1, 3)], "length": torch.tensor([5, 3])},
            "x['length']",
            "expected 1 samples, as 'waves.0' has.*got 2.*pad_sequence",
        ),
        ({}, "x", "at least one sample.*mapping, list or tuple"),
        ([1.0, "text"], "x", "at least one sample"),
        (torch.ones(0, 2), "x", "at least one sample.*got none"),
    ],
)
def test_what_is_no_batch_is_refused(wrong, argument, match):
    with pytest.raises(InvalidArgumentError, match=match) as caught:
        as_tensors(wrong)
    assert caught.value.argument == argument
    assert caught.value.remedy
