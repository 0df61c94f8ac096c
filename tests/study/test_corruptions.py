import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter

import credibly as cr
from credibly.data.sample import load_sample
from credibly.study.corruptions import KINDS


@pytest.fixture(scope="module")
def images():
    return load_sample().images[:24]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_damage_is_of_each_image_alone(images, kind):
    damage = cr.study.Corruption(kind, 4)
    found = damage(images)
    assert torch.equal(damage(images), found)
    assert torch.equal(damage(images[5:6]), found[5:6])
    order = torch.randperm(len(images))
    assert torch.equal(damage(images[order]), found[order])
    chunks = torch.cat([damage(images[:10]), damage(images[10:])])
    assert torch.equal(chunks, found)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_damage_grows_with_its_severity_and_stays_an_image(images, kind):
    sizes = []
    for severity in range(1, 6):
        found = cr.study.Corruption(kind, severity)(images)
        assert found.shape == images.shape
        assert found.dtype == images.dtype
        assert 0 <= float(found.min()) <= float(found.max()) <= 1
        sizes.append(float((found - images).abs().mean()))
    assert sizes[0] > 0
    assert all(small < large for small, large in pairwise(sizes)), sizes


@pytest.mark.parametrize("kind", [k for k in sorted(KINDS) if "noise" in k])
def test_another_seed_is_other_noise(images, kind):
    noise = [cr.study.Corruption(kind, 3, seed)(images[:2]) - images[:2] for seed in (0, 1, 2)]
    assert not torch.equal(noise[0], noise[1])
    assert not torch.equal(noise[0][1], noise[1][0])  # the next seed is not the next image


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 1, 1, 1), (0, 3, 8, 8)])
def test_all_sizes_and_precisions_are_served(kind, dtype, shape):
    images = torch.rand(shape).to(dtype)
    before = images.clone()
    found = cr.study.Corruption(kind, 5)(images)
    assert found.shape == images.shape
    assert found.dtype == dtype
    assert bool(((found >= 0) & (found <= 1)).all())
    assert torch.equal(images, before)


def test_some_damage_by_hand():
    images = torch.rand(3, 2, 6, 6, dtype=torch.float64)
    brighter = cr.study.Corruption("brightness", 2)(images)
    assert torch.allclose(brighter, (images + 0.1).clamp(max=1))
    flat = cr.study.Corruption("contrast", 2)(images)
    mean = images.mean((2, 3), keepdim=True)
    assert torch.allclose(flat, mean + 0.5 * (images - mean))
    grey = torch.full((1, 1, 9, 9), 0.3)
    for kind in ("gaussian blur", "motion blur", "rotation", "pixelation", "contrast"):
        assert torch.allclose(cr.study.Corruption(kind, 3)(grey), grey)
    pepper = cr.study.Corruption("impulse noise", 5)(torch.full((1, 1, 200, 200), 0.3))
    assert float((pepper == 0).double().mean()) == pytest.approx(0.04, abs=0.006)
    assert float((pepper == 1).double().mean()) == pytest.approx(0.04, abs=0.006)


def test_pixels_are_averaged_over_cells_that_do_not_overlap():
    images = torch.rand(2, 1, 4, 6, dtype=torch.float64)
    found = cr.study.Corruption("pixelation", 4)(images)  # half the resolution
    for row in range(4):
        for column in range(6):
            top, left = row // 2 * 2, column // 2 * 2
            cell = images[:, 0, top : top + 2, left : left + 2].mean((1, 2))
            assert torch.allclose(found[:, 0, row, column], cell)


@pytest.mark.parametrize("severity", [0, 6, -1, 1.0, True, "3", None])
def test_unknown_severities_are_refused(severity):
    with pytest.raises(cr.errors.InvalidArgumentError, match="`severity`"):
        cr.study.Corruption("contrast", severity)


def test_what_is_no_batch_of_images_is_refused():
    damage = cr.study.Corruption("contrast", 1)
    bad = torch.rand(2, 1, 4, 4)
    bad[1, 0, 0, 0] = math.nan
    for images in (
        torch.rand(4, 4), torch.rand(2, 1, 4, 4) + 1, -torch.rand(2, 1, 4, 4) - 0.1, bad,
        torch.zeros(2, 1, 4, 4, dtype=torch.uint8), np.zeros((2, 1, 4, 4)),
    ):  # fmt: skip
        with pytest.raises(cr.errors.InvalidArgumentError, match="`images`"):
            damage(images)
    with pytest.raises(cr.errors.InvalidArgumentError, match="`seed`"):
        cr.study.Corruption("contrast", 1, 0.5)


@pytest.mark.parametrize("kind", ["blur", "fog", "", ["contrast"]])
def test_an_unknown_kind_is_refused_and_the_known_ones_named(kind):
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"^`kind`.*'gaussian noise' or"):
        cr.study.Corruption(kind, 3)


@pytest.mark.parametrize(("severity", "sigma"), [(1, 0.4), (3, 0.8), (5, 1.4)])
def test_gaussian_blur_is_scipys_to_three_sigma_with_mirrored_edges(severity, sigma):
    g = torch.Generator().manual_seed(4)
    images = torch.rand(2, 3, 12, 15, generator=g, dtype=torch.float64)
    found = cr.study.Corruption("gaussian blur", severity)(images)
    expected = gaussian_filter(
        images.numpy(), (0, 0, sigma, sigma), mode="mirror",
        radius=(0, 0, math.ceil(3 * sigma), math.ceil(3 * sigma)),
    )  # fmt: skip
    torch.testing.assert_close(found, torch.as_tensor(expected), rtol=0, atol=1e-12)


def test_the_same_image_is_turned_the_same_way_in_either_precision():
    g = torch.Generator().manual_seed(4)
    single = torch.rand(12, 1, 8, 8, generator=g)
    turned = [
        cr.study.Corruption("rotation", 5)(images).double() for images in (single, single.double())
    ]
    torch.testing.assert_close(*turned, rtol=0, atol=1e-5)
