"""Claims of the paper that follow from several numbers at once, on made-up records."""

import json

import pytest

from experiments.paper import claims, command, settings, statements


def verdicts(records):
    return {
        claim["claim"]: claim["verdict"]
        for claim in (c.record() for c in statements.all_claims(records))
    }


def filtered(clean, weak, strong, over=0.1):
    """A filtering figure in which softmax is ahead by so much in each condition."""
    which = {"accuracy": [0.5] * 3, "restarts": [0.5], "right": [5], "images": 10,
             "mean": [0.5] * 50, "auroc": [0.7] * 3}  # fmt: skip
    coverage = {"mean": 0.4, "first": [0.4, 0.3, 0.5]}
    conditions = {
        name: {
            "softmax": which, "profile": which, "auroc difference": [0.1] * 3,
            "drop": {"softmax": [0.1] * 3, "profile": [0.1] * 3, "softmax ahead by": [ahead] * 3},
            "coverage": {"softmax for profile": coverage, "profile for softmax": coverage},
            "overconfidence": [over] * 3,
        }
        for name, ahead in (("clean", clean), ("0.02", weak), ("0.04", strong))
    }  # fmt: skip
    results = {space: {"10 images": conditions} for space in ("pixel", "normalised")}
    return {"settings": {"eps": [0.02, 0.04]}, "results": results}


@pytest.mark.parametrize("name", ["CIFAR-10", "Fashion-MNIST"])
@pytest.mark.parametrize(
    ("ahead", "expected"),
    [
        ((0.1, -0.1, -0.2), "reproduced"),
        ((0.1, 0.1, -0.2), "partly"),
        ((-0.1, 0.1, 0.2), "refuted"),
    ],
)
def test_accuracy_is_traded_for_robustness_where_both_signs_are_right(name, ahead, expected):
    figure = {"CIFAR-10": statements.CIFAR, "Fashion-MNIST": statements.FASHION}[name]
    assert verdicts({figure: filtered(*ahead)})[f"robust, {name}"] == expected


@pytest.mark.parametrize(("over", "expected"), [(0.2, "reproduced"), (-0.2, "refuted")])
def test_overconfidence_is_judged_by_its_sign(over, expected):
    record = filtered(0.1, -0.1, -0.2, over)
    assert verdicts({statements.FASHION: record})["overconfident, Fashion-MNIST"] == expected


def readings(*shares):
    """A figure of readings whose longest runs diverged so often."""
    rows = [{"name": "converged", "passes": 500}]
    for number, share in enumerate(shares):
        rows += [
            {"name": f"{number}, {length} steps, {which}", "passes": length, "diverged": found}
            for length, which, found in ((10, "last", 1.0), (99, "last", share), (99, "best", 0.0))
        ]
    numbers = {"softmax distance": 0.1, "rows": rows}
    return {"results": {"pixel": numbers, "adaptive": {"pixel": {}}}}


@pytest.mark.parametrize(
    ("shares", "expected"),
    [((0.0, 0.0), "reproduced"), ((0.0, 0.005), "partly"), ((0.005, 1.0), "refuted"),
     ((), "cannot be decided")],
)  # fmt: skip
def test_algorithm_1_is_judged_as_its_longest_runs_end(shares, expected):
    assert verdicts({"readings": readings(*shares)})["never diverged"] == expected


def profiles(networks, change, parameters=None):
    """A figure of profiles: second values of each network before (median) and after (5 %)."""
    each = {
        name: {
            "1000 images": {
                "second value before, 50%": [before] * 3,
                "second value after, 5%": [after] * 3,
                "spread after": [0.1] * 3,
                "normalised change": [change, change - 0.01, change + 0.01],
            },
            "accuracy": [0.93] * 3,
        }
        for name, (before, after) in networks.items()
    }
    numbers = {"networks": each, "differences": {}}
    more = {} if parameters is None else {"parameters": parameters}
    return {"results": {"pixel": numbers, "normalised": numbers}, **more}


def test_profiles_of_one_network_are_judged_by_their_quantiles():
    both = {"resnet": (0.3, 0.9), "dense": (0.2, 0.4)}
    found = verdicts({"profiles-cifar10": profiles(both, 0.3, {"resnet": 11, "dense": 12})})
    names = ("one strong component", "certainty kept", "as many parameters")
    assert [found[name] for name in names] == ["reproduced"] * 3
    other = {"resnet": (0.6, 0.1), "dense": (0.7, 0.6)}
    found = verdicts({"profiles-cifar10": profiles(other, 0.3, {"resnet": 11, "dense": 20})})
    assert [found[name] for name in names] == ["refuted"] * 3
    assert verdicts({"profiles-cifar10": profiles(both, 0.3)})[names[2]] == "cannot be decided"


@pytest.mark.parametrize(("change", "expected"), [(0.4, "reproduced"), (0.2, "refuted")])
def test_a_network_whose_profiles_change_more_is_less_robust(change, expected):
    cifar = profiles({"resnet": (0.3, 0.9), "dense": (0.9, 0.4)}, 0.3)
    fashion = profiles({"resnet": (0.3, 0.9)}, change)
    found = verdicts({"profiles-cifar10": cifar, "profiles-fashion-mnist": fashion})
    assert found["less robust"] == expected


def test_figures_of_two_networks_with_one_name_are_named():
    records = {
        "compromise": {"networks": {"a": "1" * 64}},
        "seeds": {"networks": {"a": "2" * 64, "b": "3" * 64}},
        "readings": {"networks": {"b": "3" * 64}},
    }
    assert claims.mixed_networks(records) == {"a": ["compromise (11111111)", "seeds (22222222)"]}


@pytest.mark.parametrize(
    ("small", "device", "more"),
    [
        (True, "CPU", "--small"),
        (False, "CPU", "--checkpoints FOLDER --fashion-mnist FOLDER"),
        (False, "H200", "--checkpoints FOLDER --fashion-mnist FOLDER --device cuda"),
    ],
)
def test_the_command_of_a_figure_can_be_given_as_it_is(small, device, more):
    figure = settings.load("filtering-fashion-mnist", small=small)
    found = command.exact_command(figure, [json.dumps({"device": device})], small=small)
    start = "python -m experiments.paper "
    assert found == f"{start}--figure filtering-fashion-mnist {more}"
    given = command.parsed(found.removeprefix(start).split())
    assert (given.small, given.device) == (small, "cpu" if device == "CPU" else "cuda")
