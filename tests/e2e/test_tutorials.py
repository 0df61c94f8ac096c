"""The tutorials run from top to bottom, and what they print and draw is what they show."""

import pytest

from docs import run_pages

PAGES = sorted(run_pages.TUTORIALS.glob("*.md"))
NEEDS = {"text": "transformers", "service": "ray"}


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_tutorial_shows_what_it_does(page, tmp_path, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    pytest.importorskip(NEEDS.get(page.stem, "sklearn"))
    assert run_pages.faults_of(page, tmp_path) == []
    assert len(list(run_pages.blocks_of(page.read_text("utf-8")))) >= 5


def page_of(code, shown, kind="python"):
    return f"# A page\n\n```{kind}\n{code}\n```\n\n```text\n{shown}\n```\n"


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("a  b", "a b"),
        ("97.5% of 500", "97.9% of 501"),
        ("1,000 rows", "1,001 rows"),
        ("first\n...\nlast", "first\nx\ny\nlast"),
        ("loss 0.01", "loss 0.02"),
        ("-3.5e-03", "-3.6e-03"),
    ],
)
def test_outputs_of_two_machines_agree(shown, said):
    assert run_pages.differences(shown, said) == ""


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("a", "b"),
        ("97.5%", "80.5%"),
        ("500 rows", "400 rows"),
        ("3 rows", "6 rows"),
        ("one line", "one line\ntwo"),
        ("", "printed, and not shown"),
        ("first\n...\nlast", "first\nx\ny"),
        ("1 of 2", "1 of many"),
        ("-1.5", "1.5"),
    ],
)
def test_other_outputs_do_not(shown, said):
    assert run_pages.differences(shown, said) != ""


def test_a_wrong_output_and_a_missing_picture_are_faults(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(page_of("x = 2\nprint(x * 20)", "99") + "\n![it](images/none.png)\n", "utf-8")
    wrong, missing = run_pages.faults_of(page, tmp_path)
    assert "'99', not '40'" in wrong
    assert "none.png" in missing


def test_writing_puts_in_what_was_printed_and_drawn(tmp_path):
    folder, page = tmp_path / "run", tmp_path / "page.md"
    folder.mkdir()
    code = "import pathlib\nprint('fresh')\n_ = pathlib.Path('a.png').write_bytes(b'drawn')"
    page.write_text(page_of(code, "stale") + "![it](a.png)\n", "utf-8")
    run_pages.rewrite(page, folder)
    assert "fresh" in page.read_text("utf-8")
    assert "stale" not in page.read_text("utf-8")
    assert (tmp_path / "a.png").read_bytes() == b"drawn"
    assert run_pages.faults_of(page, folder) == []


def test_shells_run_in_the_folder_and_other_terminals_end_with_the_page(tmp_path):
    waiting = "# in another terminal\nsleep 60"
    page = f"```bash\n{waiting}\n```\n\n" + page_of("touch here; ls", "here", kind="bash")
    ((first, _), (second, said)) = run_pages.run_page(page, tmp_path)
    assert (first.kind, second.kind, said) == ("bash", "bash", "here\n")
    with pytest.raises(RuntimeError, match="ended with 3"):
        list(run_pages.run_page("```bash\nexit 3\n```\n", tmp_path))
