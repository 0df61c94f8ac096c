"""The page of the demo in a browser: complete, quiet, and one click from the explorer."""

import pytest
from typer.testing import CliRunner

from credibly.cli.app import app
from credibly.report import demo_judge


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A smaller demo than the real one."""
    out = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"ORDINARY": 150, "SHOWN": 30, "DETAILS": 12}.items():
            patch.setattr(demo_judge, name, value)
        result = CliRunner().invoke(app, ["demo", "--images", "20", "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_demo_is_read_and_leads_to_the_explorer(page, demo, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto((demo / "index.html").as_uri())
    sizes = page.evaluate("[...document.images].map((image) => image.naturalWidth)")
    assert len(sizes) == 7
    assert min(sizes) > 100
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (scheme == "light")
    assert page.locator("th .badge.outlier svg").count() == 1
    page.get_by_role("link", name="Look through all these images").click()
    page.get_by_text("270 of 270 rows").wait_for()
    assert page.locator(".head").inner_text().split()[:5] == [
        "row",
        "verdict",
        "predicted",
        "label",
        "kind",
    ]
    page.get_by_role("searchbox").fill("inverted")
    page.get_by_text("30 of 270 rows").wait_for()


def test_the_text_is_as_wide_as_the_page(page, demo):
    page.set_viewport_size({"width": 1400, "height": 900})
    page.goto((demo / "index.html").as_uri())
    boxes = [page.locator(name).first.bounding_box() for name in ("h1", "h2 + p")]
    edges = [box["x"] + box["width"] for box in boxes]
    assert edges[0] == edges[1]
    assert abs(1400 - edges[0] - boxes[0]["x"]) < 20  # the page stands in the middle


def test_the_demo_fits_a_narrow_window(page, demo):
    page.set_viewport_size({"width": 420, "height": 800})
    for name in ("index.html", "explorer.html"):
        page.goto((demo / name).as_uri())
        page.locator("h1").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 420
