"""Small models with known properties, all in float64."""

import inspect

import torch
from torch import nn

import credibly as cr


def generator(seed):
    return torch.Generator().manual_seed(seed)


def known_settings(kind, **settings):
    """Those of the settings that the installed version of a library has."""
    names = inspect.signature(kind).parameters
    return {name: value for name, value in settings.items() if name in names}


def affine(features=6, classes=4, seed=0, scale=2.0):
    """Softmax regression: the only case with a global guarantee."""
    g = generator(seed)
    matrix = scale * torch.randn(classes, features, generator=g, dtype=torch.float64)
    offset = torch.randn(classes, generator=g, dtype=torch.float64)
    return matrix, offset


def affine_classifier(features=6, classes=4, seed=0, scale=2.0, **settings):
    matrix, offset = affine(features, classes, seed, scale)
    return cr.Classifier(lambda x: x.flatten(1) @ matrix.T + offset, **settings)


def smooth_network(features=8, classes=5, seed=0, width=16):
    """A network without kinks, so that gradients vanish at minima."""
    net = nn.Sequential(
        nn.Linear(features, width), nn.Softplus(), nn.Linear(width, width), nn.GELU(),
        nn.Linear(width, classes),
    ).double()  # fmt: skip
    g = generator(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            spread = 1.5 / parameter.shape[-1] ** 0.5
            parameter.copy_(spread * torch.randn(parameter.shape, generator=g, dtype=torch.float64))
    return net.eval()


def relu_network(features=8, classes=5, seed=0, width=32):
    """A network with kinks everywhere."""
    net = nn.Sequential(
        nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(),
        nn.Linear(width, classes),
    ).double()  # fmt: skip
    g = generator(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            spread = 2.0 / parameter.shape[-1] ** 0.5
            parameter.copy_(spread * torch.randn(parameter.shape, generator=g, dtype=torch.float64))
    return net.eval()


def inputs(count=6, features=8, seed=1):
    return torch.randn(count, features, generator=generator(seed), dtype=torch.float64)
