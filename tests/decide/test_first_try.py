"""What a first try gets wrong is answered by what to write instead, and is said once."""

import warnings

import pytest
import torch
from torch import nn

import credibly as cr
from credibly.errors import CrediblyWarning, InvalidArgumentError


class DigitNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.convolution(x).mean((2, 3)))


IMAGES = torch.rand(150, 3, 6, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def judge():
    return cr.Judge.fit(DigitNet().eval(), IMAGES)


@pytest.mark.parametrize(
    "call",
    [
        lambda: cr.Judge.fit(DigitNet, IMAGES),
        lambda: cr.Classifier(DigitNet),
        lambda: cr.credibility(DigitNet, IMAGES, gamma=1.0),
    ],
)
def test_a_class_in_the_place_of_a_network(call):
    with pytest.raises(InvalidArgumentError, match=r"the class DigitNet.*call it.*DigitNet\(\)"):
        call()


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (IMAGES[0], r"pass x\[None\]"),
        (IMAGES.permute(0, 2, 3, 1), r"pass x\.permute\(0, 3, 1, 2\)"),
        (IMAGES.permute(0, 3, 2, 1), r"pass x\.permute\(0, 3, 2, 1\)"),
        (IMAGES[:, :, :4], "Resize them"),
        (IMAGES[:, :, 0], "Resize them"),
    ],
)
def test_images_of_another_shape(judge, x, words):
    with pytest.raises(InvalidArgumentError, match=words) as caught:
        judge(x)
    if "pass " in words:
        expression = str(caught.value).split("pass ")[1].rstrip(".")
        assert judge(eval(expression, {"x": x}))  # noqa: S307  # what the error says to write


def test_a_list_of_images_is_to_be_stacked_first_of_all(judge):
    with pytest.raises(InvalidArgumentError, match=r"\. Stack a list.*torch\.stack\(x\).*Space"):
        judge(list(IMAGES[:4]))


def test_probabilities_in_the_place_of_logits_are_warned_of_once():
    net = nn.Sequential(DigitNet(), nn.Softmax(1)).eval()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        cr.Judge.fit(net, IMAGES)
    assert [one.category for one in seen] == [CrediblyWarning]
    assert "probabilities" in str(seen[0].message)
