"""The commands as a person would type them."""

import re
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

import credibly as cr
from credibly.cli.app import app

RUNNER = CliRunner()


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    out = tmp_path_factory.mktemp("demo") / "new" / "folder"
    result = RUNNER.invoke(app, ["demo", "--images", "40", "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out, result.output


def test_the_demo_prints_a_table_and_what_it_cost(demo):
    out, text = demo
    assert "Accuracy when answering only the most trusted share" in text
    assert re.search("passes (a|per) sample", text)
    pattern = r"\d+ ms per image and gamma on (?:one thread|\d+ threads)"
    (cost,) = re.findall(pattern, " ".join(text.split()))
    assert cost in (out / "index.html").read_text("utf-8")


def test_the_demo_begins_with_verdicts(demo):
    out, said = demo
    page = (out / "index.html").read_text("utf-8")
    assert page.index("What a Judge says") < page.index("One image")
    for word in ("ordinary", "digits", "inverted", "attacked", "tampered", "energy"):
        assert word in page
        assert word in said
    assert "passes per input (a forward: .33)" in said


def test_the_demo_page_stands_alone_and_shows_every_figure(demo):
    out, _ = demo
    page = (out / "index.html").read_text("utf-8")
    assert page.count('src="data:image/png;base64,') == 7
    assert re.findall(r'(?:src|href)="(?!data:)([^"]*)', page) == ["explorer.html"]
    pages = [out / "index.html", out / "explorer.html"]
    assert sum(path.stat().st_size for path in pages) < 5_000_000
    assert "<script" not in page
    for words in (
        "What gamma does",
        "Abstaining",
        "most credible",
        "least credible",
        "What it cost",
    ):
        assert words in page


def test_the_demo_says_how_often_overturning_helps_and_how_often_it_harms(demo):
    out, _ = demo
    from credibly.data.sample import load_sample

    profile, labels = cr.Profile.load(out / "profiles.safetensors"), load_sample().labels[:40]
    lost = corrected = harmed = 0
    for fit, credible, truth in zip(profile.credence, profile.credibility, labels, strict=True):
        before, after = int(fit.argmax()), int(credible.argmax())
        lost += before != after
        corrected += before != after == int(truth)
        harmed += after != before == int(truth)
    page = " ".join((out / "index.html").read_text("utf-8").split())
    assert lost >= harmed > 0, "nothing to count"
    assert f"ahead on {lost} of the 40 images; on {corrected} of them" in page.replace("&#39;", "'")
    assert f"and on {harmed} the network" in page


def test_the_words_of_the_demo_page_about_abstaining_agree(demo):
    page = " ".join((demo[0] / "index.html").read_text("utf-8").split())
    words = page[page.index("Abstaining") : page.index("The most credible images")]
    assert "be right more often on what you answer" not in words  # not said to be so: it may not
    assert "the more often the answers should be right" in words


def test_the_coverage_of_the_demo_is_drawn_as_in_evaluate(demo):
    from credibly.metrics import error_coverage
    from credibly.report.demo_page import coverage

    profile = cr.Profile.load(demo[0] / "profiles.safetensors")
    curve = error_coverage(profile.credence.amax(1), profile.credence.argmax(1) == 0)
    (panel,) = coverage({"one": curve}).axes
    assert panel.get_xlim() == (0, 100)


def test_the_profiles_of_the_demo_can_be_loaded_and_certified(demo):
    out, _ = demo
    profile = cr.Profile.load(out / "profiles.safetensors")
    from credibly.data.sample import load_sample

    clf = cr.Classifier(load_sample().net)
    assert len(profile) == 40
    assert profile.gamma == 200.0
    verdict = cr.certify(clf, profile.x0, profile.perturbed, gamma=200.0).holds()
    assert float(verdict.double().mean()) >= 0.95


def test_impossible_options_are_refused_before_any_work():
    result = RUNNER.invoke(app, ["demo", "--images", "5000"])
    assert result.exit_code == 2
    assert "1000" in result.output


def test_env_and_version_print_what_a_report_needs():
    text = RUNNER.invoke(app, ["env"]).output
    assert f"credibly: {cr.__version__}" in text
    assert f"torch: {torch.__version__}" in text
    assert cr.__version__ in RUNNER.invoke(app, ["--version"]).output


@pytest.mark.parametrize(
    "start",
    [
        ["-c", "from credibly.cli import main; main()"],
        ["-m", "credibly"],
        ["-m", "credibly.cli"],
    ],
)
def test_no_command_shows_the_help(start):
    done = subprocess.run(  # noqa: S603
        [sys.executable, *start],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "demo" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("package", "extra", "call"),
    [
        ("pandas", "table", "p.to_pandas()"),
        ("pyarrow", "table", "p.to_parquet('x.parquet')"),
        ("matplotlib", "report", "_extras.require_report_extra()"),
        ("rich", "cli", "cr.credibility(clf, x, gamma=1.0, progress=True)"),
    ],
)
def test_a_missing_extra_is_named(package, extra, call):
    code = (
        f"import sys; sys.modules[{package!r}] = None; "
        "import torch, credibly as cr; from credibly import _extras; "
        "clf, x = cr.Classifier(lambda x: x), torch.randn(2, 3); "
        "p = cr.credibility(clf, x, gamma=1.0); " + call
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert "MissingExtraError" in done.stderr
    assert f"pip install 'credibly[{extra}]'" in done.stderr
