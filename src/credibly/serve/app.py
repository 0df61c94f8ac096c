"""The places of the service: the Open Inference Protocol, and `/v1/judge`."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp
from torch import Tensor

from credibly.serve import openapi, protocol
from credibly.serve.answers import Answer, cleaned
from credibly.serve.bodies import Held, check_kind, gone_of
from credibly.serve.forms import files_of
from credibly.serve.gate import GONE, Gate
from credibly.serve.metrics import KIND
from credibly.serve.plain_json import check_names, flag, parsed
from credibly.serve.refusal import RefusedError, refused
from credibly.serve.service import GoneError, Service
from credibly.version import __version__

SAVE_EVERY = 30.0
"""Seconds between two saves of the watch over the stream."""

JSON, NPY = "application/json", "application/x-npy"

ARRAYS = {
    NPY: ".npy", "application/x-npz": ".npz", "application/zip": ".npz",
}  # fmt: skip
LIGHT = 1 << 16
"""Bytes of numbers that are read sooner than another thread could begin with them."""

KINDS = (JSON, *ARRAYS, "image/*", "multipart/form-data")


def create_app(
    service: Service, *, token: str | None = None, hosts: frozenset[str] | None = None
) -> ASGIApp:
    """The application of a service, behind its gate; see `Gate` for the arguments."""
    app = FastAPI(
        title="credibly", version=__version__, lifespan=_lifespan(service),
        description=openapi.ABOUT, docs_url=None, redoc_url=None, redirect_slashes=False,
    )  # fmt: skip
    _add_judge(app, service)  # places are tried in this order: what is asked most comes first
    _add_protocol(app, service)
    _add_health(app, service)
    app.add_exception_handler(HTTPException, _unknown)
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(GoneError, _gone)
    app.add_exception_handler(Exception, _failed)
    openapi.name_model(app.openapi(), service.settings.name)
    return Gate(app, service, token, hosts)


def _lifespan(service: Service) -> Any:
    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        saving = asyncio.create_task(_save_now_and_then(service))
        yield
        saving.cancel()
        await asyncio.to_thread(service.stop)

    return lifespan


async def _save_now_and_then(service: Service) -> None:
    while service.watching is not None:
        await asyncio.sleep(SAVE_EVERY)
        try:
            await asyncio.to_thread(service.watching.save)
        except Exception as error:  # noqa: BLE001  # a full disk does not stop the answers
            service.failed(error)


async def _unknown(_: Request, error: Exception) -> Response:
    """A place or method that there is not, in the form of all refusals."""
    status = getattr(error, "status_code", 500)
    headers = getattr(error, "headers", None)
    text = f"{HTTPStatus(status).phrase}. /openapi.json says what is answered, and how to ask."
    return _json({"error": text}, status=status, headers=headers)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)  # noqa: S101  # it is registered for these
    return _json(error.content, status=error.status, headers=error.headers)


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=GONE)


async def _failed(request: Request, _: Exception) -> Response:
    text = f"The service failed. Its log says why, under the id {request.scope['state']['id']}."
    return _json({"error": text}, status=500)


def _json(content: Any, *, status: int = 200, headers: Any = None) -> Response:
    text = json.dumps(content, allow_nan=False)
    return Response(text, status, headers=headers, media_type="application/json")


def _yes_or_no(*, well: bool, word: str) -> Response:
    status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
    return _json({word: well}, status=status)


def _add_health(app: FastAPI, service: Service) -> None:
    @app.head("/v2/health/live", include_in_schema=False)
    @app.get("/v2/health/live", responses=openapi.HEALTH, summary="Whether it runs")
    async def live() -> Response:
        return _yes_or_no(well=service.live, word="live")

    @app.head("/v2/health/ready", include_in_schema=False)
    @app.get("/v2/health/ready", responses=openapi.HEALTH, summary="Whether it takes requests")
    async def ready() -> Response:
        return _yes_or_no(well=service.ready, word="ready")

    @app.get("/metrics", responses=openapi.METRICS, summary="Counts, for Prometheus")
    async def metrics() -> Response:
        return Response(service.metrics.text(), headers={"content-type": KIND})

    @app.get("/v1/drift", responses=openapi.DRIFT, summary="Whether the stream has changed")
    async def drift() -> Response:
        if service.watching is None:
            text = "Nothing is watched. Start the service with --watch."
            raise RefusedError(HTTPStatus.NOT_FOUND, text)
        state = await asyncio.to_thread(lambda: service.watching.watch.state)  # type: ignore[union-attr]
        return _json(cleaned(state.as_json(service.judge.examiner.clf.classes)))


def _add_protocol(app: FastAPI, service: Service) -> None:
    def check_name(name: str) -> None:
        if name != service.settings.name:
            text = f"There is no such model here; this one is {service.settings.name!r}."
            raise RefusedError(HTTPStatus.NOT_FOUND, text)

    @app.get("/v2", responses=openapi.SERVER, summary="What this server is")
    async def server() -> Response:
        extensions = ["binary_tensor_data"]
        return _json({"name": "credibly", "version": __version__, "extensions": extensions})

    @app.get("/v2/models/{name}", responses=openapi.MODEL, summary="What the model takes and gives")
    async def model(name: str) -> Response:
        check_name(name)
        facts = service.judge.facts
        return _json(protocol.describe(name, service.intake, facts.classes))

    @app.head("/v2/models/{name}/ready", include_in_schema=False)
    @app.get("/v2/models/{name}/ready", responses=openapi.HEALTH, summary="Whether it is ready")
    async def model_ready(name: str) -> Response:
        check_name(name)
        return _yes_or_no(well=service.ready, word="ready")

    @app.post("/v2/models/{name}/infer", **openapi.infer(service.intake))
    async def infer(name: str, request: Request) -> Response:
        check_name(name)
        length = request.headers.get(protocol.JSON_LENGTH)
        with Held(service) as held:
            content = await held.read(request)
            work = partial(protocol.read, content, length, service.intake)
            asked = await service.parse(work, light=len(content) <= LIGHT)
            del content, work
        answer = await _answered(request, service, asked.rows, profile=asked.profile)
        content, size = protocol.write(name, asked, answer, service.intake)
        if size is None:
            return Response(content, media_type="application/json")
        headers = {protocol.JSON_LENGTH: str(size), "content-type": "application/octet-stream"}
        return Response(content, headers=headers)


def _add_judge(app: FastAPI, service: Service) -> None:
    @app.post("/v1/judge", **openapi.judge(service.intake))
    async def judge(request: Request) -> Response:
        query = request.query_params
        check_names("query", query, ("profile", "counterfactual", "key"))
        wants = {name: _switch(name, query.get(name)) for name in ("profile", "counterfactual")}
        with Held(service) as held:
            content = await held.read(request)
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            check_kind(kind, KINDS)
            light = len(content) <= LIGHT and kind in (JSON, NPY)
            work = partial(_rows_of, request, kind, content, service)
            rows, more = await service.parse(work, light=light)
            del content, work
        wants = {name: value or flag(more, name) for name, value in wants.items()}
        needed = any(wants.values())
        answer = await _answered(request, service, rows, profile=needed)
        return _json({"complete": answer.complete, "rows": _in_rows(answer, **wants)})


def _switch(name: str, value: str | None) -> bool:
    if value not in (None, "true", "false"):
        raise refused(name, "true or false", repr(value)[:40], "Leave it out for false.")
    return value == "true"


def _rows_of(
    request: Request, kind: str, content: bytes, service: Service
) -> tuple[Tensor, dict[str, Any]]:
    """The rows in a body, and what else it says."""
    intake, due = service.intake, request.scope["state"]["due"]
    if kind == JSON:
        found = parsed(content)
        check_names("body", found, ("inputs", "profile", "counterfactual"))
        return intake.of_lists(found.get("inputs")), found
    if kind in ARRAYS:
        key = request.query_params.get("key")
        return intake.of_numpy(content, ARRAYS[kind], key), {}
    if kind == "multipart/form-data":
        whole = request.headers.get("content-type", "")
        return intake.of_images(files_of(whole, content, service.settings.rows), due), {}
    return intake.of_images([content], due), {}


async def _answered(request: Request, service: Service, rows: Any, *, profile: bool) -> Answer:
    state, gone = request.scope["state"], gone_of(request)
    answer = await service.answer(rows, due=state["due"], profile=profile, gone=gone)
    state["facts"] |= {
        "rows": len(answer), "batch": answer.batch, "complete": answer.complete,
        "judged_ms": round(1000 * answer.seconds, 2),
        "verdicts": dict(Counter(answer.columns["verdict"])),
    }  # fmt: skip
    return answer


def _in_rows(answer: Answer, *, profile: bool, counterfactual: bool) -> list[dict[str, Any]]:
    """One object per row."""
    rows = []
    for number in range(len(answer)):
        row = {name: values[number] for name, values in answer.columns.items()}
        row["class"] = None if row["class"] < 0 else row["class"]
        explained = answer.explained.get(number)
        if profile:
            row["profile"] = None if explained is None else explained.numbers
        if counterfactual:
            row["counterfactual"] = None if explained is None else explained.counterfactual
        rows.append(cleaned(row))
    return rows
