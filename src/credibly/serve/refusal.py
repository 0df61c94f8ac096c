"""A request that is answered with a status and a sentence that says what to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

from credibly.errors import CrediblyError, InvalidArgumentError

_BESIDE = {
    HTTPStatus.UNAUTHORIZED: {"www-authenticate": "Bearer"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"connection": "close"},
}
"""Headers that HTTP asks for beside a status."""


class RefusedError(Exception):
    """What a refused request is told.

    Args:
        status: of HTTP.
        text: one or two sentences.
        retry_after: seconds after which it may be worth to ask again.
        about: the argument, what was expected and got, and the remedy, where they are known.
    """

    def __init__(
        self,
        status: int,
        text: str,
        *,
        retry_after: int | None = None,
        about: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(text)
        self.status, self.retry_after, self.about = HTTPStatus(status), retry_after, about

    @property
    def content(self) -> dict[str, Any]:
        """What is sent, as JSON."""
        return {"error": str(self), **self.about}

    @property
    def headers(self) -> dict[str, str]:
        """What is sent beside it."""
        more = _BESIDE.get(self.status, {})
        return more if self.retry_after is None else more | {"retry-after": str(self.retry_after)}


def encoded(refusal: RefusedError) -> tuple[dict[str, str], bytes]:
    """The headers and the body of its answer."""
    content = json.dumps(refusal.content).encode()
    kind = {"content-type": "application/json", "content-length": str(len(content))}
    return {**refusal.headers, **kind}, content


def in_words(value: Any) -> str:
    """What a value from JSON is."""
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return {dict: "an object", str: "text", bool: "true or false", type(None): "nothing"}.get(
        type(value), "a number"
    )


def refused(argument: str, expected: str, got: str, remedy: str) -> RefusedError:
    """A request whose content cannot be used."""
    return of_error(InvalidArgumentError(argument, expected=expected, got=got, remedy=remedy))


def of_error(error: CrediblyError) -> RefusedError:
    """The same from an error of the package."""
    parts = ("argument", "expected", "got", "remedy")
    about = {name: str(vars(error)[name]) for name in parts if name in vars(error)}
    return RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), about=about)


def unready(*, ending: bool) -> RefusedError:
    """While the model warms up, and while the service ends."""
    why = "is ending" if ending else "is not ready yet"
    text = f"The service {why}. Ask again, or ask another one."
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, text, retry_after=1)


def late() -> RefusedError:
    """The deadline of a request is over before it was judged."""
    text = "The time of the request was over before its body was read. Send less, or ask later."
    return RefusedError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after=1)


def too_many_connections() -> RefusedError:
    """All connections that may be open wait for an answer."""
    text = "All connections are in use. Ask again later."
    return RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, text, retry_after=1)


def too_large(what: str, most: str, remedy: str) -> RefusedError:
    """A request that holds more than is taken at a time."""
    text = f"{what} is larger than {most}. {remedy}"
    return RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text, about={"remedy": remedy})
