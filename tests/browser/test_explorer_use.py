"""The explorer in use: the address, the filter, fingers and keys, and where things stand."""

import numpy as np
import pytest

from tests.browser.explorer_pages import ROWS, by_hand, go, reading, shown, verdicts


def scrolls(page, place, least):
    """Wait until it has; the policy of the page allows no `wait_for_function`."""
    for _ in range(40):
        if page.evaluate(place) > least:
            return
        page.wait_for_timeout(50)
    pytest.fail(f"{place} is still {page.evaluate(place)}")


def swipe(page, x, y, far):
    """A finger that moves up."""
    device = page.context.new_cdp_session(page)

    def touch(kind, *places):
        points = [{"x": x, "y": place} for place in places]
        device.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        page.wait_for_timeout(16)

    touch("touchStart", y)
    for step in range(1, 16):
        touch("touchMove", y - far * step / 15)
    touch("touchEnd")


def test_the_address_gives_the_same_view_again(page, tmp_path):
    go(page, by_hand(tmp_path, verdicts()) + "#x=p_wrong")
    page.get_by_role("checkbox", name="across: log scale").uncheck()
    box = page.locator(".u-over").bounding_box()
    for share in (0.13, 0.31, 0.57, 0.73, 0.91):
        page.mouse.click(box["x"] + share * box["width"], box["y"] + 30)
        before = reading(page)
        page.wait_for_timeout(250)
        page.reload()
        page.locator(".row").first.wait_for()
        assert reading(page) == before
    assert not page.get_by_role("checkbox", name="across: log scale").is_checked()
    page.evaluate("location.hash = 'x=foo&y=toString&score=bar&sort=__proto__&row=999'")
    page.wait_for_timeout(250)
    assert page.locator(".scatter .waiting").count() == 0
    assert "trust ≥" in reading(page)


def test_the_filter_takes_rows_names_with_spaces_and_escape(page, tmp_path):
    frame = verdicts(**{"Größe (cm)": np.arange(ROWS) * 1.0, "__proto__": "x"})
    go(page, by_hand(tmp_path, frame, extra=["Größe (cm)", "__proto__"]))
    field = page.get_by_role("searchbox")
    for text, count in {"5": 1, '"Größe (cm)">=50': 10, "row<7": 7, "photo": 60}.items():
        field.fill(text)
        assert shown(page) == count, text
    for name in ("toString", "constructor"):
        field.fill(f"{name}<1")
        page.get_by_text(f"there is no column {name}").wait_for()
    field.fill("row<7")
    field.press("Escape")
    assert field.input_value() == "row<7"
    assert page.evaluate("document.activeElement.tagName") == "BODY"
    assert shown(page) == 7


def test_a_swipe_over_the_plots_scrolls_the_page(chromium, tmp_path):
    context = chromium.new_context(viewport={"width": 420, "height": 800}, has_touch=True)
    page = context.new_page()
    go(page, by_hand(tmp_path, verdicts()))
    before = reading(page)
    for name in (".scatter canvas", ".u-over"):
        page.evaluate(f"document.querySelector('{name}').scrollIntoView({{ block: 'center' }})")
        box, start = page.locator(name).bounding_box(), page.evaluate("scrollY")
        swipe(page, box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, 250)
        scrolls(page, "scrollY", start + 100)
    assert shown(page) == ROWS
    assert reading(page) == before
    context.close()


def test_a_line_is_no_selection(page, tmp_path):
    go(page, by_hand(tmp_path, verdicts()))
    box = page.locator(".scatter canvas").bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 62, steps=3)
    page.mouse.up()
    assert shown(page) == ROWS


def test_a_text_in_which_nothing_moved(page, tmp_path):
    words = [{"text": text, "moved": 1e-17} for text in ("the", "soup")]
    about = {"input": {"kind": "words", "words": words, "least": 1e-6}, "class_count": 40}
    about["classes"] = [{"name": "a", "before": -1.0, "after": -1.0, "predicted": True}]
    go(page, by_hand(tmp_path, verdicts(), details={0: about}) + "#row=0")
    said = page.locator(".words").inner_text()
    assert "No word had to move." in said
    assert "moved most" not in said
    widths = page.eval_on_selector_all(
        ".word", "(all) => all.map((one) => getComputedStyle(one).borderBottomWidth)"
    )
    assert widths == ["0px", "0px"]
    assert "1 of 40 classes" in page.locator(".classes h3").inner_text()


def test_a_row_of_a_table_in_which_nothing_moved(page, tmp_path):
    column = {"name": "age", "before": 3.0, "after": 3.0 + 1e-17, "moved": 1e-17}
    about = {"kind": "table", "columns": [column], "total": 1, "scaled": True, "least": 1e-6}
    go(page, by_hand(tmp_path, verdicts(), details={0: {"input": about}}) + "#row=0")
    assert page.locator(".columns h3").inner_text() == "Columns; none had to move"
    assert page.locator(".columns .moved").inner_text().strip() == "0"
    wide = "document.querySelector('.way i').getBoundingClientRect().width"
    assert page.evaluate(wide) == 0


def test_bars_are_on_one_scale_and_no_row_is_covered(page, tmp_path):
    sizes = [-0.5, -12.34, -1.0, -3.25e-4]
    classes = [
        {"name": f"class {k}", "before": size, "after": size / 3, "predicted": k == 0}
        for k, size in enumerate(sizes)
    ]
    frame = verdicts()
    frame["verdict"] = ["trust"] * 58 + ["doubtful"] * 2
    about = {"classes": classes, "class_count": 4}
    go(page, by_hand(tmp_path, frame, details={0: about}) + "#row=0")
    wide = "(all) => all.map((one) => one.getBoundingClientRect().width)"
    assert len(set(page.eval_on_selector_all(".classes .bars", wide))) == 1
    page.get_by_role("searchbox").fill("row<30")
    assert len(set(page.eval_on_selector_all(".verdicts .bar", wide))) == 1
    table, total = (page.locator(name).bounding_box() for name in (".table", ".total"))
    assert table["y"] + table["height"] <= total["y"] + 1


def test_arrows_scroll_the_detail_that_has_the_focus(page, tmp_path):
    columns = {f"signal.{k}": np.zeros(ROWS) for k in range(80)}
    go(page, by_hand(tmp_path, verdicts(**columns)) + "#row=4")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    scrolls(page, "document.querySelector('.detail .scroll').scrollTop", 0)
    assert page.locator(".which").inner_text().startswith("row 4")
