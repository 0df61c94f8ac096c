"""What cannot be used is refused with the argument and what to do, and nothing is guessed."""

import io

import numpy as np
import pytest
import torch

from credibly.serve.intake import Intake
from credibly.serve.refusal import RefusedError
from credibly.serve.settings import Settings

JSON, NPY, NPZ = (
    {"content-type": f"application/{kind}"} for kind in ("json", "x-npy", "x-npz")
)  # fmt: skip


def npy(x, **more):
    file = io.BytesIO()
    np.save(file, x, **more)
    return file.getvalue()


class Runs:
    """Would run, if a pickle were opened."""

    def __reduce__(self):
        return print, ("opened",)


@pytest.mark.parametrize(
    ("body", "kind", "status", "argument"),
    [
        (b"{", JSON, 422, "body"),
        (b"[]", JSON, 422, "body"),
        (b"\xff\xfe", JSON, 422, "body"),
        (b"[" * 100_000, JSON, 422, "body"),
        (b"{}", JSON, 422, "inputs"),
        (b'{"inputs": []}', JSON, 422, "inputs"),
        (b'{"inputs": [0.1, 0.2, 0.3, 0.4]}', JSON, 422, "inputs"),
        (b'{"inputs": [[0.1, 0.2], [0.3]]}', JSON, 422, "inputs"),
        (b'{"inputs": [[0.1, 0.2, 0.3]]}', JSON, 422, "inputs"),
        (b'{"inputs": [["0.1", "0.2", "0.3", "0.4"]]}', JSON, 422, "inputs"),
        (b'{"inputs": [[null, 0.2, 0.3, 0.4]]}', JSON, 422, "inputs"),
        (b'{"inputs": [[true, false, true, true]]}', JSON, 422, "inputs"),
        (b'{"inputs": [{"a": 1}]}', JSON, 422, "inputs"),
        (b'{"inputs": [[0.1, 0.2, 0.3, 0.4]], "profile": 1}', JSON, 422, "profile"),
        (b'{"inputs": [[%s, 0.2, 0.3, 0.4]]}' % (b"9" * 5000), JSON, 422, None),
        (npy(np.zeros((1, 4), int)), NPY, 422, "inputs"),
        (npy(np.zeros((1, 4), complex)), NPY, 422, "inputs"),
        (npy(np.zeros(4, np.float32)), NPY, 422, "inputs"),
        (npy(np.zeros((0, 4), np.float32)), NPY, 422, "inputs"),
        (npy(np.zeros((2, 4), np.float32))[:-1], NPY, 422, None),
        (npy(np.array([[Runs()] * 4], object), allow_pickle=True), NPY, 422, None),
        (b"junk", NPZ, 422, None),
        (b"junk", {"content-type": "image/png"}, 422, "inputs"),
        (b"junk", {"content-type": "text/plain"}, 415, None),
        (b"junk", {}, 415, None),
        (b"junk", {"content-type": "multipart/form-data"}, 422, "body"),
        (b"junk", {"content-type": "multipart/form-data; boundary=x"}, 422, "body"),
        (b'{"inputs": [[0.1, 0.2, 0.3, 0.4]]}', JSON | {"x-deadline-ms": "soon"}, 422, None),
        (b'{"inputs": [[0.1, 0.2, 0.3, 0.4]]}', JSON | {"x-deadline-ms": "0"}, 422, None),
    ],
)
def test_a_body_that_cannot_be_used(  # noqa: PLR0917
    asked, capfd, body, kind, status, argument
):
    answer = asked.client.post("/v1/judge", content=body, headers=kind)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]
    if argument is not None:
        assert answer.json()["argument"] == argument
    assert "opened" not in capfd.readouterr().out


def test_more_rows_than_a_request_may_have(running_service, judge):
    with running_service(judge, rows=8) as asked:
        assert asked.judge(torch.zeros(8, 4)).status_code == 200
        answer = asked.judge(torch.zeros(9, 4))
    assert answer.status_code == 413
    assert "Send several requests" in answer.json()["error"]


def test_a_body_that_is_too_large_is_refused_by_its_length(running_service, judge):
    with running_service(judge, body=1000) as asked:
        answer = asked.client.post("/v1/judge", content=b"0" * 1001, headers=JSON)
        assert answer.status_code == 413
        assert asked.judge(torch.zeros(1, 4)).status_code == 200


def test_a_body_without_a_length_is_refused_once_it_is_too_large(running_service, judge):
    def parts():
        for _ in range(30):
            yield b"0" * 100

    with running_service(judge, body=1000) as asked:
        answer = asked.client.post("/v1/judge", content=parts(), headers=JSON)
        assert answer.status_code == 413
        assert asked.service.held == 0


def test_an_array_that_says_it_is_larger_than_it_is(running_service, judge):
    """Many rows of nothing take few bytes in an archive; they are refused by their header."""
    file = io.BytesIO()
    np.savez_compressed(file, x=np.zeros((100_000, 4), np.float32))
    with running_service(judge) as asked:
        answer = asked.client.post("/v1/judge", content=file.getvalue(), headers=NPZ)
    assert len(file.getvalue()) < 10_000
    assert answer.status_code == 413


def test_whole_numbers_are_divided_where_that_is_told(running_service, judge):
    x = np.array([[0, 51, 102, 255]], np.uint8)
    with running_service(judge, scale=255.0) as asked:
        answer = asked.client.post("/v1/judge", content=npy(x), headers=NPY)
    found = judge(torch.from_numpy(x).float() / 255)
    assert answer.json()["rows"][0]["trust"] == pytest.approx(float(found.trust[0]), abs=1e-6)


def test_numbers_outside_the_bounds_are_refused(running_service, judge):
    with running_service(judge, bounds=(-5.0, 5.0)) as asked:
        assert asked.judge(torch.full((1, 4), 5.0)).status_code == 200
        answer = asked.judge(torch.full((1, 4), 255.0))
    assert answer.status_code == 422
    assert answer.json()["expected"] == "numbers in -5 to 5"


def npz(**arrays):
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (npy(np.zeros((2, 4), np.float32))[:-1], NPY),
        (npy(np.array([[Runs()] * 4], object), allow_pickle=True), NPY),
        (npz(x=np.zeros((2, 4), np.float32)), NPY),
        (b"junk", NPZ),
        (npz(x=np.zeros((2, 4), np.float32))[:-30], NPZ),
        (npz(), NPZ),
    ],
)
def test_damaged_arrays_are_refused_by_name(asked, body, kind):
    """They say what to send, and nothing of the code that reads them."""
    answer = asked.client.post("/v1/judge", content=body, headers=kind)
    found = answer.json()
    assert answer.status_code == 422
    assert found["argument"] in ("body", "inputs")
    assert "np.save" in found["remedy"]
    assert "Error" not in answer.text
    assert "Zip" not in answer.text


@pytest.mark.parametrize(
    ("content", "got"),
    [(b'{"inputs": null}', "nothing"), (b'{"inputs": {"a": 1}}', "an object"),
     (b"[1, 2]", "a list of 2"),
     (b'{"inputs": [[0, 0, 0, 0]], "profile": "yes"}', "text")],
)  # fmt: skip
def test_what_came_is_said_in_words(asked, content, got):
    assert asked.client.post("/v1/judge", content=content, headers=JSON).json()["got"] == got


def test_names_that_nothing_has_are_refused(asked):
    answer = asked.client.post("/v1/judge?profle=true", json={"inputs": [[0.0] * 4]})
    assert (answer.status_code, answer.json()["argument"]) == (422, "query")
    assert answer.json()["expected"] == "only profile, counterfactual, key"
    answer = asked.judge([[0.0] * 4], profil=True)
    assert (answer.status_code, answer.json()["got"]) == (422, "'profil'")


def test_an_archive_of_very_many_files_is_refused(asked):
    arrays = {f"x{k}": np.zeros((1, 4), np.float32) for k in range(65)}
    answer = asked.client.post("/v1/judge?key=x0", content=npz(**arrays), headers=NPZ)
    assert answer.status_code == 413
    del arrays["x64"]
    answer = asked.client.post("/v1/judge?key=x0", content=npz(**arrays), headers=NPZ)
    assert answer.status_code == 200


def test_places_have_one_name(asked):
    """A redirect would name a host that the client did not ask."""
    assert asked.client.get("/v2/").status_code == 404


def test_unknown_places_and_methods_are_told_as_json(asked):
    assert asked.client.get("/v3").json()["error"].startswith("Not Found. /openapi.json")
    answer = asked.client.delete("/v1/judge")
    assert answer.status_code == 405
    assert answer.json()["error"].startswith("Method Not Allowed.")
    assert asked.client.get("/v1/drift").status_code == 404


@pytest.mark.parametrize("name", ["queue", "rows", "deadline", "body", "scale", "threads"])
def test_limits_that_make_no_sense(name):
    from credibly.errors import InvalidArgumentError
    from credibly.serve.settings import Settings

    for value in (0, -1):
        with pytest.raises(InvalidArgumentError, match=f"`{name}`"):
            Settings(**{name: value})
    with pytest.raises(InvalidArgumentError, match="`name`"):
        Settings(name="a/b")


def test_columns_that_are_missing_or_unknown_are_named():
    intake = Intake((2,), torch.float32, whole=False, names=("age", "income"), settings=Settings())
    assert intake.of_lists([{"income": 2, "age": 1}]).tolist() == [[1, 2]]
    for row, words in (
        ({"age": 1}, "row 1 that lacks 'income'"),
        ({"age": 1, "income": 2, "size": 3}, "row 1 that has 'size'"),
        ({"age": 1, "Income": 2}, "row 1 that lacks 'income' and has 'Income'"),
    ):
        with pytest.raises(RefusedError, match=words):
            intake.of_lists([{"age": 1, "income": 2}, row])
