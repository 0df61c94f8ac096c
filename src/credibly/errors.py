"""What can go wrong, and the one way of saying so: argument, expected, got, what to do."""

from __future__ import annotations

from typing import Any


class CrediblyError(Exception):
    """Base of every error that credibly raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args), self.__dict__  # it may come from another process


def _rebuilt(kind: type[CrediblyError], args: tuple[object, ...]) -> CrediblyError:
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class InvalidArgumentError(CrediblyError, ValueError):
    """An argument has the wrong value, shape, type, device or precision."""

    def __init__(self, argument: str, *, expected: str, got: str, remedy: str) -> None:
        self.argument = argument
        self.expected = expected
        self.got = got
        self.remedy = remedy
        super().__init__(f"`{argument}`: expected {expected}, got {got}. {remedy}")


class ModelError(CrediblyError, RuntimeError):
    """The model cannot be used as it is; the message says what to change."""

    def __init__(self, problem: str, *, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}. {remedy}")


class FileFormatError(CrediblyError, ValueError):
    """A file does not hold what it should."""


class NotStoredError(CrediblyError, AttributeError):
    """A part of a profile that the file it was read from does not hold."""

    def __init__(self, name: str, *, of: str) -> None:
        super().__init__(
            f"this {of} has no `{name}`: it was read from a Parquet table, which holds what "
            "decisions need and nothing of the inputs. Solve the inputs again with credibility; "
            "Profile.save (.safetensors) and Profile.load keep everything."
        )


class OutputError(CrediblyError, RuntimeError):
    """Results cannot be written where they should be; the message says what to do."""

    def __init__(self, problem: str, *, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}. {remedy}")


class WorkerError(CrediblyError, RuntimeError):
    """Workers cannot be reached, started or kept; finished rows are, and the message says more."""

    def __init__(self, problem: str, *, remedy: str) -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem}. {remedy}")


class MissingExtraError(CrediblyError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, *, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"Install it with: pip install 'credibly[{extra}]' (from credibly's own folder: "
            f"pip install '.[{extra}]'), or alone: pip install {package}"
        )


class CrediblyWarning(UserWarning):
    """Something that works, but probably not as meant."""
