"""`/v1/judge` says what the Judge says, whatever form the rows have."""

import io
import math
import threading
import time

import numpy as np
import pytest
import torch
from PIL import Image

import credibly as cr
from credibly.data.sample import load_sample

CLOSE = 5e-3
"""Steps go on from rounding, which depends on how many rows are solved together."""

NUMBERS = ("trust", "p_ordinary", "p_outlier", "p_tampered", "p_wrong", "passes")


def as_npy(x):
    file = io.BytesIO()
    np.save(file, x)
    return file.getvalue()


def as_npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def as_image(pixels, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind)
    return file.getvalue()


def check(answer, found):
    """Compare an answer with a judgement."""
    assert answer.status_code == 200, answer.text
    rows = answer.json()["rows"]
    assert len(rows) == len(found)
    for number, row in enumerate(rows):
        assert row["verdict"] == found.verdicts[number].value
        assert row["accepted"] == bool(found.accepted[number])
        assert row["reason"] == found.reasons[number]
        k = int(found.predicted[number])
        assert row["class"] == (k if k >= 0 else None)
        assert row["class_name"] == (found.class_name(k) if k >= 0 else None)
        for name in NUMBERS:
            value = float(getattr(found, name)[number])
            expected = None if math.isnan(value) else pytest.approx(value, abs=1e-6)
            assert row[name] == expected


def test_json_rows_get_what_the_judge_says(asked, judge):
    x = torch.cat([torch.randn(5, 4), torch.full((1, 4), 50.0)])
    check(asked.judge(x), judge(x))
    assert asked.judge(x).json()["complete"] is True


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<f2"])
def test_arrays_of_any_width_and_order_are_read(asked, judge, dtype):
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(dtype)
    answer = asked.client.post(
        "/v1/judge", content=as_npy(x), headers={"content-type": "application/x-npy"}
    )
    check(answer, judge(x.astype(np.float32)))


def test_an_archive_needs_a_key_only_where_there_are_several_arrays(asked, judge):
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    kind = {"content-type": "application/x-npz"}
    check(asked.client.post("/v1/judge", content=as_npz(x=x), headers=kind), judge(x))
    two = as_npz(x=x, y=x + 1)
    answer = asked.client.post("/v1/judge", content=two, headers=kind)
    assert answer.status_code == 422
    assert answer.json()["argument"] == "key"
    assert answer.json()["got"] == "no name"
    assert answer.json()["expected"] == "the name of one of the 2 arrays, x, y"
    check(asked.client.post("/v1/judge?key=y", content=two, headers=kind), judge(x + 1))


def test_whole_numbers_in_json_are_numbers(asked, judge):
    check(asked.judge([[0, 1, 0, 1]]), judge(torch.tensor([[0.0, 1.0, 0.0, 1.0]])))


def test_a_row_with_nan_is_unusable_and_alone_so(asked, judge):
    x = torch.randn(3, 4)
    x[1, 2] = torch.nan
    answer = asked.client.post(
        "/v1/judge", content=as_npy(x.numpy()), headers={"content-type": "application/x-npy"}
    )
    check(answer, judge(x))
    assert [row["verdict"] == "unusable" for row in answer.json()["rows"]] == [False, True, False]


def test_a_profile_is_the_one_the_judge_solves(asked, judge):
    x = torch.randn(2, 4)
    rows = asked.judge(x, profile=True, counterfactual=True).json()["rows"]
    found = judge(x)
    for number, row in enumerate(rows):
        profile = found.profile_of(number)
        assert row["stage"] == "profile"
        assert row["profile"]["classes"] == ["cat", "dog", "owl"]
        for name in ("credibility", "credence"):
            expected = pytest.approx(getattr(profile, name)[0].tolist(), abs=CLOSE)
            assert row["profile"][name] == expected
        assert row["profile"]["risk"] == pytest.approx(float(profile.risk[0]), abs=CLOSE)
        assert row["passes"] == pytest.approx(1 / 3 + float(profile.passes[0]))
        moved = {c["name"]: c["after"] for c in row["counterfactual"]["columns"]}
        expected = profile.perturbed[0].tolist()
        assert moved == {f"column {k}": pytest.approx(v, abs=CLOSE) for k, v in enumerate(expected)}


@pytest.mark.parametrize("use", ["doubtful", "always"])
def test_a_judge_of_profiles_gets_them_where_it_looks_at_them(held, running_service, use):
    judge = cr.Judge.fit(
        cr.Classifier(held, classes=["cat", "dog", "owl"]), torch.randn(200, 4), profile=use
    )
    x = torch.cat([torch.randn(6, 4), torch.full((1, 4), 9.0)])
    found = judge(x)
    with running_service(judge) as asked:
        answer = asked.judge(x)
        check(answer, found)
    looked = found.signals["shift"].isfinite().tolist()
    stages = [row["stage"] for row in answer.json()["rows"]]
    assert stages == ["profile" if yes else "forward" for yes in looked]
    assert any(looked)


def test_columns_may_be_named(running_service):
    names = ["age", "height", "weight", "shoe"]
    net, space = torch.nn.Linear(4, 3), cr.Space(columns=names)
    judge = cr.Judge.fit(cr.Classifier(net, space=space), torch.randn(200, 4))
    x = torch.randn(1, 4)
    named = dict(zip(reversed(names), reversed(x[0].tolist()), strict=True))
    with running_service(judge) as asked:
        check(asked.judge([named]), judge(x))
        answer = asked.judge([{**named, "hat": 1}])
    assert answer.status_code == 422
    assert "age, height, weight, shoe" in answer.json()["remedy"]


@pytest.fixture(scope="module")
def pictures():
    sample = load_sample()
    judge = cr.Judge.fit(cr.Classifier(sample.net, classes=sample.classes), sample.images[:200])
    return judge, (sample.images[300:303, 0] * 255).round().to(torch.uint8).numpy()


def test_images_are_read_as_they_were_written(pictures, running_service):
    judge, pixels = pictures
    found = judge(torch.from_numpy(pixels[:, None]).float() / 255)
    with running_service(judge) as asked:
        alone = asked.client.post(
            "/v1/judge", content=as_image(pixels[0]), headers={"content-type": "image/png"}
        )
        files = [("file", (f"{n}.png", as_image(p), "image/png")) for n, p in enumerate(pixels)]
        together = asked.client.post("/v1/judge?counterfactual=true", files=files)
    check(alone, found[:1])
    shown = together.json()["rows"][0]["counterfactual"]
    assert shown["kind"] == "image"
    assert shown["after"].startswith("data:image/png;base64,")
    assert [r["verdict"] for r in together.json()["rows"]] == [v.value for v in found.verdicts]


def test_images_of_another_size_are_resized_only_where_that_is_told(pictures, running_service):
    judge, pixels = pictures
    large = as_image(np.kron(pixels[0], np.ones((2, 2), np.uint8)))
    kind = {"content-type": "image/png"}
    with running_service(judge) as asked:
        answer = asked.client.post("/v1/judge", content=large, headers=kind)
    assert answer.status_code == 422
    assert answer.json()["got"] == "56 x 56"
    with running_service(judge, resize=True) as asked:
        answer = asked.client.post("/v1/judge", content=large, headers=kind)
    assert answer.json()["rows"][0]["class"] is not None


def test_a_decompression_bomb_is_refused_by_its_header(pictures, running_service):
    bomb = as_image(np.zeros((3000, 3000), np.uint8))
    assert len(bomb) < 20_000
    judge, _ = pictures
    kind = {"content-type": "image/png"}
    with running_service(judge, resize=True, pixels=1_000_000) as asked:
        answer = asked.client.post("/v1/judge", content=bomb, headers=kind)
    assert answer.status_code == 413
    assert "1000000 pixels" in answer.json()["error"]


def test_images_for_a_model_of_numbers_are_refused(asked):
    answer = asked.client.post(
        "/v1/judge", content=as_image(np.zeros((4, 4), np.uint8)),
        headers={"content-type": "image/png"},
    )  # fmt: skip
    assert answer.status_code == 422


def form(contents):
    return [("file", (f"{n}.png", content, "image/png")) for n, content in enumerate(contents)]


def test_pixels_of_all_images_of_a_request_are_bounded(pictures, running_service):
    judge, _ = pictures
    image = as_image(np.zeros((100, 100), np.uint8))
    with running_service(judge, resize=True, pixels=30_000) as asked:
        assert asked.client.post("/v1/judge", files=form([image] * 3)).status_code == 200
        answer = asked.client.post("/v1/judge", files=form([image] * 4))
    assert answer.status_code == 413
    assert "30000 pixels" in answer.json()["error"]


def test_images_are_decoded_beside_other_requests(
    pictures, running_service, aside, monkeypatch, wait_until
):
    """While one is decoded others are answered; the time of a request is looked at in between."""
    from credibly.serve import intake

    begun, go, seen = threading.Event(), threading.Event(), []
    read = intake.channels_first

    def slow(*given):
        seen.append(time.monotonic())
        begun.set()
        assert go.wait(30)
        return read(*given)

    monkeypatch.setattr(intake, "channels_first", slow)
    judge, pixels = pictures
    image = as_image(pixels[0])
    with running_service(judge) as asked:
        headers = {"x-deadline-ms": "200"}
        aside.ask(lambda: asked.client.post("/v1/judge", files=form([image] * 5), headers=headers))
        assert begun.wait(20)
        aside.ask(lambda: asked.client.post("/v1/judge", files=form([image])))
        assert asked.client.get("/v2/health/live").status_code == 200
        until = seen[0] + 0.3
        wait_until(lambda: time.monotonic() > until)
        assert len(seen) == 1  # one request at a time
        go.set()
        answers = aside.done()
    late = next(answer for answer in answers if answer.status_code != 200)
    assert late.status_code == 429
    assert late.headers["retry-after"] == "1"
    assert len(seen) == 2
