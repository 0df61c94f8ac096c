"""The explorer as a person uses it: as a file and from its server, with pointer and with keys."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest
import torch

import credibly as cr
from credibly.cli import options as o
from credibly.cli.exploring import Given, write_page
from credibly.data.sample import classifier, load_sample
from credibly.io.marks import marks_place, read_marks
from tests.browser.explorer_pages import explored, go, judged, opened

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture(scope="module")
def clothes(tmp_path_factory):
    """Images that were judged, ordinary and inverted ones, with labels in the file."""
    sample = load_sample()
    judge = cr.Judge.fit(classifier(), sample.images[:300], sample.labels[:300])
    x = torch.cat([sample.images[300:400], 1 - sample.images[300:330]])
    folder = judged(tmp_path_factory.mktemp("clothes"), judge, x.numpy())
    labels = torch.cat([sample.labels[300:400], sample.labels[300:330]])
    frame = pd.read_parquet(folder / "verdicts.parquet")
    frame["label"] = [sample.classes[k] for k in labels.tolist()]
    frame.to_parquet(folder / "verdicts.parquet", row_group_size=50)
    return folder


@pytest.fixture
def images(clothes):
    marks_place(clothes / "verdicts.parquet").unlink(missing_ok=True)
    return opened(clothes, "credibly.data.sample:classifier")


def rows_shown(page):
    return page.locator(".total").inner_text()


def frame_of(given):
    return pd.read_parquet(given.verdicts)


def test_counts_filters_and_the_address(page, images):
    frame = frame_of(images)
    with explored(images) as url:
        go(page, url)
        assert rows_shown(page) == "130 of 130 rows"
        outliers = int((frame.verdict == "outlier").sum())
        assert outliers > 10
        page.get_by_role("button", name="outlier", exact=False).first.click()
        assert rows_shown(page) == f"{outliers} of 130 rows"
        page.keyboard.press("/")
        page.keyboard.type("p_outlier<0.01 predicted=bag")
        wanted = frame[
            (frame.verdict == "outlier") & (frame.p_outlier < 0.01) & (frame.predicted == "bag")
        ]
        assert rows_shown(page) == f"{len(wanted)} of 130 rows"
        page.wait_for_timeout(250)
        address = page.url
        page.goto("about:blank")
        go(page, address)
        assert rows_shown(page) == f"{len(wanted)} of 130 rows"
        page.get_by_role("button", name="Clear filters").click()
        assert rows_shown(page) == "130 of 130 rows"
        page.get_by_role("searchbox").fill("nothing<1")
        page.get_by_text("there is no column nothing").wait_for()


def test_sorting_is_that_of_pandas(page, images):
    frame = frame_of(images)
    with explored(images) as url:
        go(page, url)
        page.get_by_role("columnheader", name="trust").get_by_role("button").click()
        first = page.locator("[role=row][aria-rowindex='2'] [role=gridcell]").first
        assert first.inner_text() == str(frame.trust.idxmin())
        page.get_by_role("columnheader", name="trust").get_by_role("button").click()
        assert first.inner_text() == str(frame.trust.idxmax())


def test_alarms_are_refused_unless_told(page, images):
    frame = frame_of(images)
    usual = frame[~frame.verdict.isin(["outlier", "tampered"])]
    assert len(usual) < len(frame)
    known = int((frame.verdict == "trust").sum())
    answered = usual.sort_values("trust", ascending=False).head(known)
    right = 100 * (answered.predicted == answered.label).mean()
    with explored(images) as url:
        go(page, url)
        said = page.locator(".reading-of").inner_text().replace("\n", " ")
        assert f"answers {known} of {len(frame)} rows" in said
        assert f"accuracy {right:.1f} %" in said
        assert "alarms caught" not in said
        page.get_by_role("checkbox", name="refuse alarms").click()
        said = page.locator(".reading-of").inner_text().replace("\n", " ")
        assert "alarms caught" in said
        page.wait_for_timeout(250)
        assert "alarms=answered" in page.url


def test_dragging_the_threshold_tells_coverage_and_accuracy(page, images):
    frame = frame_of(images)
    with explored(images) as url:
        go(page, f"{url}#alarms=answered")
        box = page.locator(".u-over").bounding_box()
        middle = box["y"] + box["height"] / 2
        page.mouse.move(box["x"] + 0.9 * box["width"], middle)
        page.mouse.down()
        for share in (0.8, 0.6, 0.4):
            page.mouse.move(box["x"] + share * box["width"], middle)
        page.mouse.up()
        slider = page.get_by_role("slider")
        coverage = int(slider.get_attribute("aria-valuenow"))
        assert 38 <= coverage <= 42
        answered = frame.sort_values("trust", ascending=False).head(round(0.4 * len(frame)))
        right = (answered.predicted == answered.label).mean()
        assert f"accuracy {100 * right:.1f} %" in page.locator(".reading-of").inner_text().replace(
            "\n", " "
        )
        slider.press("ArrowRight")
        assert int(slider.get_attribute("aria-valuenow")) == coverage + 1
        page.get_by_role("button", name="refused").click()
        assert rows_shown(page).startswith(f"{round(0.59 * 130)} of")


def test_an_image_in_detail_by_the_keyboard(page, images):
    frame = frame_of(images)
    row = int(frame.index[frame.verdict == "outlier"][0])
    with explored(images) as url:
        go(page, f"{url}#v=outlier")
        page.keyboard.press("ArrowDown")
        detail = page.locator(".detail")
        detail.get_by_text(f"row {row}", exact=False).wait_for()
        page.locator(".detail img").first.wait_for()
        assert page.locator(".pictures img").count() == 3
        assert page.locator(".neighbours img").count() == 3
        assert page.locator(".classes li").count() == 10
        assert frame.reason[row][1:] in detail.inner_text()
        sizes = page.evaluate(
            "[...document.querySelectorAll('.detail img')].map((i) => i.naturalWidth)"
        )
        assert set(sizes) == {28}
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.className") == "scroll"
        page.keyboard.press("Escape")
        assert not page.locator(".detail").is_visible()
        page.keyboard.press("?")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("Escape")
        assert page.get_by_role("dialog").count() == 0


def test_a_selection_in_the_scatter_and_its_csv(page, images, tmp_path):
    frame = frame_of(images)
    with explored(images) as url:
        go(page, url)
        box = page.locator(".scatter canvas").bounding_box()
        page.mouse.move(box["x"] + 2, box["y"] + 2)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
        page.mouse.up()
        chosen = int(rows_shown(page).split()[0])
        assert 0 < chosen < 130
        with page.expect_download() as download:
            page.get_by_role("button", name="Export").click()
        download.value.save_as(tmp_path / "out.csv")
        with (tmp_path / "out.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == chosen
        middle = (frame.trust.min() + frame.trust.max()) / 2
        for one in rows:
            assert float(one["trust"]) <= middle + 0.1
            assert float(one["trust"]) == pytest.approx(frame.trust[int(one["row"])])
            assert one["predicted"] == frame.predicted[int(one["row"])]


def test_marks_are_saved_read_back_and_counted(page, images):
    with explored(images) as url:
        go(page, f"{url}#row=3")
        page.get_by_role("button", name="does not belong").wait_for()
        page.keyboard.press("1")
        page.keyboard.press("ArrowDown")
        page.get_by_text("row 4", exact=False).first.wait_for()
        page.get_by_role("button", name="wrong 2").click()
        page.get_by_role("button", name="wrong 2", pressed=True).wait_for()
        page.wait_for_timeout(200)
    found = read_marks(marks_place(images.verdicts))
    assert {row: one.mark for row, one in found.items()} == {3: "right", 4: "wrong"}
    with explored(images) as url:
        go(page, url)
        page.get_by_label("Marks", exact=True).select_option("marked")
        assert rows_shown(page) == "2 of 130 rows"
        page.keyboard.press("u")  # nothing is left that has no mark
        assert page.locator(".detail").is_hidden()


def test_one_file_with_everything_inside(page, images, tmp_path):
    size = write_page(images, tmp_path / "page.html", 5)
    assert size < 1_000_000
    go(page, (tmp_path / "page.html").as_uri())
    assert rows_shown(page) == "130 of 130 rows"
    page.get_by_role("columnheader", name="trust").get_by_role("button").click()
    page.keyboard.press("ArrowDown")
    page.locator(".pictures img").first.wait_for()
    assert page.locator(".neighbours img").count() == 3
    page.keyboard.press("End")
    assert page.get_by_role("button", name="does not belong").count() == 0
    requests = page.evaluate("performance.getEntriesByType('resource').length")
    assert requests == 0


def test_a_frame_as_in_a_notebook(page, tmp_path):
    torch.manual_seed(0)
    judge = cr.Judge.fit(torch.nn.Linear(4, 3), torch.randn(150, 4))
    shown = judge(torch.randn(12, 4)).explore(details=2)
    (tmp_path / "notebook.html").write_text(f"<body>{shown._repr_html_()}</body>", "utf-8")
    page.goto((tmp_path / "notebook.html").as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("[role=row][aria-rowindex='2']").wait_for()
    frame.get_by_role("button", name="trust").first.click()
    assert frame.locator(".total").inner_text().endswith("of 12 rows")


def test_many_rows_stay_quick_to_use(page, tmp_path):
    """How quick is measured by `python -m benchmarks.explorer`; here it only has to work."""
    from benchmarks.explorer import write_verdicts

    write_verdicts(tmp_path / "verdicts.parquet", 1_000_000)
    given = Given.open(
        tmp_path / "verdicts.parquet", inputs=None, model=None, judge=None, words=None,
        of_model=o.ModelOptions(), of_data=o.DataOptions(),
    )  # fmt: skip
    frame = pd.read_parquet(tmp_path / "verdicts.parquet", columns=["trust", "verdict", "reason"])
    with explored(given) as url:
        go(page, url)
        assert rows_shown(page) == "1,000,000 of 1,000,000 rows"
        page.keyboard.press("End")
        page.locator(".table").press("End")
        page.get_by_text("row 999999").first.wait_for()
        page.get_by_role("columnheader", name="trust").get_by_role("button").click()
        first = page.locator("[role=row][aria-rowindex='2'] [role=gridcell]").first
        page.locator(".table").evaluate("(table) => (table.scrollTop = 0)")
        first.wait_for()
        assert first.inner_text() == str(frame.trust.idxmin())
        page.get_by_role("searchbox").fill("trust<0 doubtful")
        wanted = ((frame.trust < 0) & (frame.verdict == "doubtful")).sum()
        page.get_by_text(f"{wanted:,} of 1,000,000 rows").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_to_mend(chromium, images, scheme):
    if not AXE.is_file():
        pytest.skip("the accessibility check needs axe-core: run `npm ci` in web/")
    context = chromium.new_context(
        viewport={"width": 1280, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page = context.new_page()
    with explored(images) as url:
        go(page, f"{url}#row=102&brush=-9,0,0,1&t=0.3")
        page.locator(".neighbours img").first.wait_for()
        page.evaluate(AXE.read_text("utf-8"))
        for prepare in (lambda: None, lambda: page.keyboard.press("?")):
            prepare()
            found = page.evaluate("axe.run(document)")
            faults = {
                one["id"]: [
                    node["html"][:120] + json.dumps(node["any"][:1])[:300]
                    for node in one["nodes"][:3]
                ]
                for one in found["violations"]
            }
            assert faults == {}
    context.close()


def test_a_file_that_is_no_verdicts_is_refused(tmp_path):
    pd.DataFrame({"x": [1]}).to_parquet(tmp_path / "verdicts.parquet")
    with pytest.raises(cr.errors.FileFormatError, match="no column id, predicted, trust, verdict"):
        Given.open(
            tmp_path / "verdicts.parquet", inputs=None, model=None, judge=None, words=None,
            of_model=o.ModelOptions(), of_data=o.DataOptions(),
        )  # fmt: skip
