"""What the explorer says of labels, marks and thresholds is true."""

import numpy as np
import pytest

from credibly.cli.exploring import write_page
from credibly.io.marks import marks_place, read_marks
from tests.browser.explorer_pages import (
    CLASSES,
    ROWS,
    by_hand,
    go,
    reading,
    served,
    shown,
    verdicts,
)

LABELS = {
    "names": lambda truth: [CLASSES[k] for k in truth],
    "numbers": lambda truth: truth,
    "floats": lambda truth: [None if k == 0 else float(v) for k, v in enumerate(truth)],
    "texts": lambda truth: [str(k) for k in truth],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind_are_compared_with_the_class(page, tmp_path, kind):
    frame = verdicts()
    frame["label"] = LABELS[kind](frame.truth)
    wrong = CLASSES[frame.truth[50]]
    with served(tmp_path, frame) as (url, given):
        write_page(given, tmp_path / "page.html", 0)
        for place in (url, (tmp_path / "page.html").as_uri()):
            go(page, f"{place}#t=-9&row=50")
            known = ROWS - int(frame.label.isna().sum())
            assert f"({known - 15} of {known} labelled, 95 % interval" in reading(page)
            page.get_by_text(f"✗ it is {wrong}").wait_for()
            page.get_by_role("searchbox").fill(f"label={wrong}")
            assert shown(page) >= int((frame.truth == frame.truth[50]).sum()) - 1


def test_true_and_false_count_the_classes(page, tmp_path):
    frame = verdicts()
    frame["predicted"] = np.where(frame.truth > 0, "yes", "no")
    frame["label"] = frame.truth > 0
    with served(tmp_path, frame, ["no", "yes"]) as (url, given):
        write_page(given, tmp_path / "page.html", 0)
        for place in (url, (tmp_path / "page.html").as_uri()):
            go(page, f"{place}#t=-9")
            assert "accuracy 100.0 % (60 of 60 labelled" in reading(page)


def test_labels_that_name_no_class_do_not_count(page, tmp_path):
    frame = verdicts()
    frame["label"] = frame.truth + 7
    go(page, by_hand(tmp_path, frame) + "#row=50")
    assert "accuracy" not in reading(page)
    assert "Labels are not counted: none of 60 names a class" in reading(page)
    assert "✗" not in page.locator(".said").inner_text()


def test_the_hint_about_labels(page, tmp_path):
    frame = verdicts()
    go(page, by_hand(tmp_path, frame))
    assert "judge with --label NAME" in reading(page)
    frame["label"] = [CLASSES[k] if k else None for k in frame.truth]
    go(page, by_hand(tmp_path, frame) + "#q=label%3D%22%22")
    assert shown(page) == int((frame.truth == 0).sum())
    assert "None of the rows shown has a label" in reading(page)
    assert "--label" not in reading(page)


def test_a_low_chance_of_being_wrong_is_answered_first(page, tmp_path):
    frame = verdicts(label=None)
    frame["label"] = [CLASSES[k] for k in frame.truth]
    go(page, by_hand(tmp_path, frame) + "#score=p_wrong&t=0.4&side=answered")
    assert "p_wrong ≤ 0.4 answers 40 of 60 rows" in reading(page)
    assert "accuracy 100.0 % (40 of 40 labelled" in reading(page)
    assert shown(page) == 40
    choices = page.locator(".curve select option").all_inner_texts()
    assert choices == ["trust", "p_outlier", "p_wrong"]


def test_the_threshold_passes_ties_and_may_answer_nothing(page, tmp_path):
    go(page, by_hand(tmp_path, verdicts()) + "#score=p_wrong&t=0.9")
    slider = page.get_by_role("slider")
    counts = []
    for _ in range(3):
        slider.press("ArrowLeft")
        counts.append(reading(page).partition("answers ")[2].partition(" of")[0])
    assert counts == ["40", "20", "0"]
    page.wait_for_timeout(250)
    page.reload()
    page.locator("[role=row]").first.wait_for()
    assert "p_wrong ≤ -∞ answers 0 of 60 rows" in reading(page)
    slider.press("ArrowRight")
    assert "answers 20 of 60" in reading(page)


def test_verdicts_that_are_none_are_not_trusted(page, tmp_path):
    frame = verdicts()
    frame["verdict"] = [None, "mystery"] * (ROWS // 2)
    go(page, by_hand(tmp_path, frame))
    assert page.locator(".verdicts button", has_text="unusable").inner_text().split()[1] == "60"
    assert page.locator(".verdicts button", has_text="trust").inner_text().split()[1] == "0"
    assert "answers 0 of 60 rows" in reading(page)
    assert "no verdict" in page.locator("[role=row][aria-rowindex='2']").inner_text()


def test_marks_of_another_class_are_told_and_not_counted(page, tmp_path):
    frame = verdicts()
    lines = ["row,id,predicted,mark", "1,photo 1,gone,right", "2,photo 2,gone,does not belong"]
    marks_place(tmp_path / "v.parquet").write_text("\n".join([*lines, ""]), "utf-8")
    with served(tmp_path, frame) as (url, _):
        go(page, f"{url}#t=-9")
        assert "1 mark of an earlier judgement not counted" in reading(page)
        assert "accuracy" not in reading(page)
        page.get_by_role("searchbox").fill('mark="does not belong"')
        assert shown(page) == 1


def test_a_mark_that_is_not_saved_is_taken_back_alone_and_told(page, tmp_path):
    def refuse(route):
        if '"row":3,' in route.request.post_data:
            route.fulfill(status=422, body="the disk is full")
        else:
            route.continue_()

    with served(tmp_path, verdicts()) as (url, given):
        page.route("**/api/marks", refuse)
        go(page, f"{url}#row=3")
        page.keyboard.press("1")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("2")
        said = page.get_by_role("alert")
        page.get_by_role("searchbox").fill("mark=right")
        page.get_by_text("No row passes").wait_for()
        page.get_by_role("searchbox").fill("mark=wrong")
        assert shown(page) == 1
        page.wait_for_timeout(200)
        found = read_marks(marks_place(given.verdicts))
        assert {row: one.mark for row, one in found.items()} == {4: "wrong"}
        page.get_by_role("searchbox").fill("")
        page.locator(".table").focus()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("1")
        said.wait_for()
        assert "The mark of row 3 was not saved: the disk is full" in said.inner_text()
    page.faults[:] = [fault for fault in page.faults if "422" not in fault]
