"""The Open Inference Protocol: its places, JSON, and tensors as bytes."""

import json
import struct

import numpy as np
import pytest
import torch

INFER = "/v2/models/judge/infer"
CLOSE = 5e-3
"""Steps go on from rounding, which depends on how many rows are solved together."""

LENGTH = "inference-header-content-length"


def tensor(x, **more):
    return {
        "name": "input", "shape": list(x.shape), "datatype": "FP32", "data": x.ravel().tolist(),
        **more,
    }  # fmt: skip


@pytest.fixture
def x():
    return np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)


def as_bytes(x, **more):
    raw = x.tobytes()
    head = {"name": "input", "shape": list(x.shape), "datatype": "FP32",
            "parameters": {"binary_data_size": len(raw)}}  # fmt: skip
    text = json.dumps({"inputs": [head], **more}).encode()
    return text + raw, {LENGTH: str(len(text)), "content-type": "application/octet-stream"}


def taken_apart(answer):
    """The outputs of an answer as arrays, read as the protocol says."""
    length = int(answer.headers[LENGTH])
    head, tail = json.loads(answer.content[:length]), answer.content[length:]
    types = {"INT64": "<i8", "FP32": "<f4", "FP64": "<f8", "BOOL": "?"}
    found = {}
    for output in head["outputs"]:
        if "data" in output:
            found[output["name"]] = output["data"]
            continue
        size = output["parameters"]["binary_data_size"]
        raw, tail = tail[:size], tail[size:]
        if output["datatype"] == "BYTES":
            texts = []
            while raw:
                (count,) = struct.unpack("<I", raw[:4])
                texts.append(raw[4 : 4 + count].decode())
                raw = raw[4 + count :]
            found[output["name"]] = texts
        else:
            values = np.frombuffer(raw, types[output["datatype"]])
            found[output["name"]] = values.reshape(output["shape"])
    assert tail == b""
    return head, found


def test_health_and_metadata(asked):
    client = asked.client
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    assert client.get("/v2/models/judge/ready").json() == {"ready": True}
    assert client.get("/v2").json()["extensions"] == ["binary_tensor_data"]
    model = client.get("/v2/models/judge").json()
    assert model["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 4]}]
    assert "versions" not in model  # there is no address of a version
    shapes = {output["name"]: output["shape"] for output in model["outputs"]}
    assert shapes["verdict"] == [-1]
    assert shapes["credibility"] == [-1, 3]
    assert shapes["perturbed"] == [-1, 4]
    for place in ("/v2/models/other", "/v2/models/other/ready"):
        assert client.get(place).status_code == 404
    assert client.post("/v2/models/other/infer", json={}).status_code == 404


@pytest.mark.parametrize("nested", [False, True])
def test_json_in_and_out(asked, judge, x, nested):
    given = tensor(x, data=x.tolist()) if nested else tensor(x)
    answer = asked.client.post(INFER, json={"id": "one", "inputs": [given]}).json()
    found, outputs = judge(torch.from_numpy(x)), {o["name"]: o for o in answer["outputs"]}
    assert answer["id"] == "one"
    assert answer["model_name"] == "judge"
    assert outputs["verdict"]["data"] == [v.value for v in found.verdicts]
    assert outputs["class"] == {
        "name": "class", "shape": [3], "datatype": "INT64", "data": found.predicted.tolist(),
    }  # fmt: skip
    for name in ("trust", "p_ordinary", "p_outlier", "p_tampered", "p_wrong"):
        assert outputs[name]["data"] == pytest.approx(getattr(found, name).tolist(), abs=1e-6)


def test_bytes_in_and_out(asked, judge, x):
    wanted = [
        {"name": name, "parameters": {"binary_data": True}}
        for name in ("verdict", "class", "accepted", "trust", "credibility", "perturbed")
    ]
    body, headers = as_bytes(x, outputs=[*wanted, {"name": "risk"}])
    head, found = taken_apart(asked.client.post(INFER, content=body, headers=headers))
    judged = judge(torch.from_numpy(x))
    assert head["parameters"] == {"complete": True}
    assert found["verdict"] == [v.value for v in judged.verdicts]
    assert found["class"].tolist() == judged.predicted.tolist()
    assert found["accepted"].tolist() == judged.accepted.tolist()
    assert found["trust"] == pytest.approx(judged.trust.numpy(), abs=1e-6)
    for row in range(len(x)):
        profile = judged.profile_of(row)
        assert found["credibility"][row] == pytest.approx(profile.credibility[0].numpy(), abs=CLOSE)
        assert found["perturbed"][row] == pytest.approx(profile.perturbed[0].numpy(), abs=CLOSE)
        assert found["risk"][row] == pytest.approx(float(profile.risk[0]), abs=CLOSE)


def test_all_outputs_as_bytes(asked, x):
    body, headers = as_bytes(x, parameters={"binary_data_output": True})
    head, found = taken_apart(asked.client.post(INFER, content=body, headers=headers))
    assert all("data" not in output for output in head["outputs"])
    assert found["class_name"][0] in ("cat", "dog", "owl")


def test_nan_is_null_in_json_and_nan_in_bytes(asked, x):
    x[1] = np.nan
    body, headers = as_bytes(x)
    answer = asked.client.post(INFER, content=body, headers=headers).json()
    outputs = {o["name"]: o["data"] for o in answer["outputs"]}
    assert outputs["trust"][1] is None
    assert outputs["class"][1] == -1
    assert outputs["verdict"][1] == "unusable"
    wanted = [{"name": n, "parameters": {"binary_data": True}} for n in ("trust", "credibility")]
    body, headers = as_bytes(x, outputs=wanted)
    _, found = taken_apart(asked.client.post(INFER, content=body, headers=headers))
    assert np.isnan(found["trust"]).tolist() == [False, True, False]
    assert np.isnan(found["credibility"]).all(1).tolist() == [False, True, False]


def test_parameters_that_are_null_are_left_out(asked, x):
    given = tensor(x, parameters=None)
    content = {"inputs": [given], "outputs": [{"name": "trust", "parameters": None}]}
    answer = asked.client.post(INFER, json={**content, "parameters": None})
    assert answer.status_code == 200
    assert len(answer.json()["outputs"]) == 1


def test_a_shape_is_named_in_its_refusal(asked, x):
    answer = asked.client.post(INFER, json={"inputs": [tensor(x, shape=[-1, 4])]}).json()
    assert answer["got"] == "[-1, 4]"
    assert answer["expected"] == "1 to 16 whole numbers from 0 on"


@pytest.mark.parametrize("place", ["/v2/health/live", "/v2/health/ready", "/v2/models/judge/ready"])
def test_health_is_told_to_those_that_want_the_status_only(asked, place):
    answer = asked.client.head(place)
    assert (answer.status_code, answer.content) == (200, b"")


def broken(x):
    good = tensor(x)
    yield {}, "inputs"
    yield {"inputs": [good, good]}, "inputs"
    yield {"inputs": [{**good, "name": "x"}]}, "inputs[0].name"
    yield {"inputs": [{**good, "shape": [3, -4]}]}, "inputs[0].shape"
    yield {"inputs": [{**good, "shape": [2, 4]}]}, "inputs[0].data"
    yield {"inputs": [{**good, "shape": [12]}]}, "inputs"
    yield {"inputs": [{**good, "shape": [4, 3]}]}, "inputs"
    yield {"inputs": [{**good, "datatype": "FP8"}]}, "inputs[0].datatype"
    yield {"inputs": [{**good, "datatype": "INT32"}]}, "inputs[0].data"
    yield {"inputs": [{**good, "datatype": "BOOL"}]}, "inputs[0].data"
    yield {"inputs": [{**good, "datatype": "UINT8", "data": [300] * 12}]}, "inputs[0].data"
    yield {"inputs": [{**good, "datatype": "UINT8", "data": [-1] * 12}]}, "inputs[0].data"
    yield {"inputs": [{**good, "datatype": "INT32", "data": [1] * 12}]}, "inputs"
    yield {"inputs": [{**good, "data": "abc"}]}, "inputs[0].data"
    yield {"inputs": [{**good, "parameters": 3}]}, "inputs[0].parameters"
    size = {"parameters": {"binary_data_size": 48}}
    yield {"inputs": [{**good, **size}]}, "inputs[0].parameters.binary_data_size"
    yield {"inputs": [good], "outputs": [{"name": "logits"}]}, "outputs"
    yield {"inputs": [good], "outputs": [3]}, "outputs"
    yield {"inputs": [good], "parameters": {"binary_data_output": 1}}, "binary_data_output"
    yield {"inputs": [good], "id": 3}, "id"


def test_what_is_not_the_protocol_is_refused_by_name(asked, x):
    for content, argument in broken(x):
        answer = asked.client.post(INFER, json=content)
        assert answer.status_code == 422, (content, answer.text)
        assert answer.json()["argument"] == argument
        assert answer.json()["remedy"]


@pytest.mark.parametrize("length", ["-1", "99999", "four", "1e2", "9" * 30])
def test_lengths_that_lie(asked, x, length):
    body, headers = as_bytes(x)
    answer = asked.client.post(INFER, content=body, headers={**headers, LENGTH: length})
    assert answer.status_code == 422


def test_bytes_that_are_missing_or_left_over(asked, x):
    body, headers = as_bytes(x)
    for content in (body[:-1], body + b"0"):
        assert asked.client.post(INFER, content=content, headers=headers).status_code == 422
