"""The description of the service as OpenAPI: what is sent and answered, with examples."""

from __future__ import annotations

import math
from typing import Any

from credibly.serve.answers import FAILED, NO_TIME
from credibly.serve.intake import Intake
from credibly.serve.protocol import INPUT, JSON_LENGTH, OF_PROFILE, PLAIN, datatypes

ABOUT = (
    "Says of every prediction of a classifier whether to trust it, why, and at what cost. "
    "`/v2` is the Open Inference Protocol with its binary tensor extension; `/v1/judge` is simpler."
)

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": ["number", "null"]}
_YES: Schema = {"type": "boolean"}


def _object(properties: Schema, required: list[str] | None = None) -> Schema:
    needed = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": needed}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _answer(text: str, schema: Schema, example: Any = None) -> Schema:
    content = {"schema": schema} | ({} if example is None else {"example": example})
    return {"description": text, "content": {"application/json": content}}


_ERROR = _object(
    {"error": _TEXT, "argument": _TEXT, "expected": _TEXT, "got": _TEXT, "remedy": _TEXT},
    ["error"],
)

_REFUSALS: dict[int | str, Schema] = {
    status: _answer(text, _ERROR)
    for status, text in {
        400: "The header Host stands there twice, or this is not HTTP.",
        401: "The token is missing or wrong.",
        403: "The name in Host or Origin is not one of this machine.",
        404: "There is no such model.",
        408: "The body did not come in time.",
        413: "The body, the rows or an image are too large.",
        415: "Bodies of this Content-Type are not read.",
        422: "The content cannot be used; the error names the argument and what to do.",
        431: "The head of the request is too large.",
        429: "There is no room for more; Retry-After says when to ask again.",
        500: "The service failed.",
        503: "It is not ready yet, or is ending.",
        504: "The model did not answer.",
    }.items()
}


def _some(*statuses: int) -> dict[int | str, Schema]:
    return {status: _REFUSALS[status] for status in (400, 401, 403, 431, *statuses)}


_WELL = {"type": "object", "additionalProperties": _YES}
HEALTH: dict[int | str, Schema] = {
    200: _answer("Yes.", _WELL, {"ready": True}),
    503: _answer("No.", _WELL, {"ready": False}),
    **_some(404),
}
METRICS: dict[int | str, Schema] = {
    200: {"description": "Counts.", "content": {"text/plain": {"schema": _TEXT}}},
    **_some(),
}
DRIFT: dict[int | str, Schema] = {
    200: _answer(
        "What the watch says.",
        _object({"alarm": _YES, "since": {"type": ["integer", "null"]},
                 "seen": {"type": "integer"}, "p_value": _NUMBER}),
        {"alarm": False, "since": None, "seen": 1200, "p_value": 0.34},
    ),
    **_some(404),
}  # fmt: skip
SERVER: dict[int | str, Schema] = {
    200: _answer("This server.", _object({"name": _TEXT, "version": _TEXT,
                                          "extensions": _list(_TEXT)})),
    **_some(),
}  # fmt: skip

_TENSOR = _object(
    {"name": _TEXT, "datatype": _TEXT, "shape": _list({"type": "integer"}),
     "data": {"type": "array"}, "parameters": {"type": "object"}},
    ["name", "datatype", "shape"],
)  # fmt: skip
MODEL: dict[int | str, Schema] = {
    200: _answer(
        "The model.",
        _object({"name": _TEXT, "platform": _TEXT, "inputs": _list(_TENSOR),
                 "outputs": _list(_TENSOR)}),
    ),
    **_some(404),
}  # fmt: skip

_ROW = _object(
    {
        "class": {"type": ["integer", "null"]}, "class_name": {"type": ["string", "null"]},
        "verdict": {"enum": ["trust", "doubtful", "outlier", "tampered", "unusable"]},
        "accepted": _YES, "trust": _NUMBER, "p_ordinary": _NUMBER, "p_outlier": _NUMBER,
        "p_tampered": _NUMBER, "p_wrong": _NUMBER, "passes": _NUMBER, "reason": _TEXT,
        "stage": {"enum": ["forward", "profile"]}, "complete": _YES,
        "incomplete": {"enum": [None, NO_TIME, FAILED]},
    }
)  # fmt: skip
_JUDGED_EXAMPLE = {
    "complete": True,
    "rows": [
        {"class": 3, "class_name": "dress", "verdict": "trust", "accepted": True, "trust": 7.1,
         "p_ordinary": 0.52, "p_outlier": 0.49, "p_tampered": 0.61, "p_wrong": 0.004,
         "passes": 0.33, "reason": "trust: surer than 63% of ordinary inputs; the input "
         "looks ordinary", "stage": "forward", "complete": True,
         "incomplete": None}
    ],
}  # fmt: skip

_DEADLINE = {
    "name": "X-Deadline-Ms", "in": "header", "required": False,
    "description": "Milliseconds in which the answer should be there.",
    "schema": {"type": "integer", "minimum": 1},
}  # fmt: skip
_LENGTH = {
    "name": JSON_LENGTH, "in": "header", "required": False,
    "description": "Bytes of the JSON; behind it follow the tensors.",
    "schema": {"type": "integer", "minimum": 0},
}  # fmt: skip


def _numbers(intake: Intake) -> Schema:
    """Rows of numbers, in the shape of the model."""
    found: Schema = {"type": "integer" if intake.whole else "number"}
    for size in reversed(intake.shape or ()):
        found = {"type": "array", "items": found, "minItems": size, "maxItems": size}
    if intake.shape is None:
        found = {"type": "array"}
    return {"type": "array", "items": found, "minItems": 1, "maxItems": intake.settings.rows}


def _example(intake: Intake) -> list[Any]:
    """One row of zeros, if that is short enough to be read."""
    if intake.shape is None or math.prod(intake.shape) > 64:
        return []
    found: Any = 0 if intake.whole else 0.0
    for size in reversed(intake.shape):
        found = [found] * size
    return [found]


def _switch(name: str, text: str) -> Schema:
    return {"name": name, "in": "query", "required": False, "description": text, "schema": _YES}


def judge(intake: Intake) -> dict[str, Any]:
    """Of `/v1/judge`."""
    schema = _object(
        {"inputs": _numbers(intake), "profile": _YES, "counterfactual": _YES}, ["inputs"]
    )
    schema["additionalProperties"] = False
    binary = {"schema": {"type": "string", "format": "binary"}}
    form = {"schema": _object({"file": {"type": "string", "format": "binary"}}, [])}
    content = {
        "application/json": {"schema": schema, "example": {"inputs": _example(intake)}},
        "application/x-npy": binary,
        "application/x-npz": binary,
        "image/*": binary,
        "multipart/form-data": form,
    }
    found = _object({"complete": _YES, "rows": _list(_ROW)})
    return {
        "summary": "Class, verdict, p-values and reasons of each row",
        "responses": {
            200: _answer("The verdicts.", found, _JUDGED_EXAMPLE),
            **_some(408, 413, 415, 422, 429, 500, 503, 504),
        },
        "openapi_extra": {
            "requestBody": {"required": True, "content": content},
            "parameters": [
                _DEADLINE,
                _switch("profile", "Whether the profile of each row is sent."),
                _switch("counterfactual", "Whether it is shown what would change its class."),
                {"name": "key", "in": "query", "required": False, "schema": _TEXT,
                 "description": "Name of the array in an .npz file."},
            ],
        },
    }  # fmt: skip


def infer(intake: Intake) -> dict[str, Any]:
    """Of `/v2/models/{name}/infer`."""
    kinds = datatypes(intake)
    size: Schema = {"type": "integer", "minimum": 1, "maximum": 1 << 31}
    shape = {**_list(size), "minItems": 2, "maxItems": 16}
    given = _object(
        {**_TENSOR["properties"], "name": {"enum": [INPUT]}, "shape": shape,
         "datatype": {"enum": kinds}},
        ["name", "datatype", "shape"],
    )  # fmt: skip
    output = _object({"name": {"enum": [*PLAIN, *OF_PROFILE]}, "parameters": {"type": "object"}},
                     ["name"])  # fmt: skip
    schema = _object(
        {"id": _TEXT, "inputs": {**_list(given), "minItems": 1, "maxItems": 1},
         "outputs": _list(output), "parameters": {"type": "object"}},
        ["inputs"],
    )  # fmt: skip
    tensor = {"name": INPUT, "shape": [1, *(intake.shape or ())], "datatype": kinds[0]}
    example = {
        "inputs": [{**tensor, "data": _example(intake)}],
        "outputs": [{"name": "verdict"}, {"name": "p_ordinary"}],
    }
    found = _object({"model_name": _TEXT, "outputs": _list(_TENSOR), "id": _TEXT,
                     "parameters": {"type": "object"}}, ["model_name", "outputs"])  # fmt: skip
    answer = _answer("The outputs.", found)
    answer["content"]["application/octet-stream"] = {"schema": {"type": "string"}}
    return {
        "summary": "The same in the Open Inference Protocol",
        "responses": {200: answer, **_some(404, 408, 413, 422, 429, 500, 503, 504)},
        "openapi_extra": {
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": schema, "example": example}},
            },
            "parameters": [_DEADLINE, _LENGTH],
        },
    }


def name_model(description: dict[str, Any], name: str) -> None:
    """Say in a whole description which model there is; it is kept by the application."""
    for place in description["paths"].values():
        for operation in place.values():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path":
                    parameter["schema"]["enum"] = [name]
