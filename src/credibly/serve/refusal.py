"""A request that is answered with a status and a sentence that says what to do."""

from __future__ import annotations

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


def refused(argument: str, expected: str, got: str, remedy: str) -> RefusedError:
    """A request whose content cannot be used."""
    return of_error(InvalidArgumentError(argument, expected=expected, got=got, remedy=remedy))


def of_error(error: CrediblyError) -> RefusedError:
    """The same from an error of the package."""
    parts = ("argument", "expected", "got", "remedy")
    about = {name: str(vars(error)[name]) for name in parts if name in vars(error)}
    return RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), about=about)


def too_large(what: str, most: str, remedy: str) -> RefusedError:
    """A request that holds more than is taken at a time."""
    text = f"{what} is larger than {most}. {remedy}"
    return RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text, about={"remedy": remedy})
