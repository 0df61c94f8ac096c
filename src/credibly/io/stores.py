"""Object stores and other file systems as places: S3, Google Cloud Storage, any of fsspec.

Waiting is bounded: a store that cannot be reached is an error after a minute, not a run that hangs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, unquote

from credibly._extras import load_extra
from credibly._validation import require
from credibly.errors import CrediblyError, FileFormatError, OutputError
from credibly.io.places import FileFacts, LocalPlace, Place, local_path, uri_of

CONNECT, REQUEST, ATTEMPTS = 10.0, 60.0, 3
"""Seconds to connect and to wait for an answer, and how often a request is tried."""

AT_ONCE, COPYABLE = 64 << 20, 5 << 30
"""Bytes that are sent in one go, and the largest object that stores copy among themselves."""

_CREDENTIALS = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|INVALID_CLIENT_TOKEN|SIGNATURE|EXPIRED|UNRECOGNIZED_CLIENT|"
    r"MISSING_AUTH|403|Forbidden|credential|Unauthori[sz]ed|PERMISSION_DENIED|UNAUTHENTICATED",
    re.IGNORECASE,
)
_NETWORK = re.compile(
    r"NETWORK_CONNECTION|TIMEOUT|timed out|resolve host|Could(n't| not) connect|curlCode|"
    r"UNAVAILABLE|Connection refused|Name or service",
    re.IGNORECASE,
)
_BUCKET = re.compile(r"NO_SUCH_BUCKET|bucket does not exist|Bucket .* not found", re.IGNORECASE)


@dataclass(frozen=True)
class StorePlace(Place):
    """A file or folder of a store.

    Attributes:
        uri: as it was named, without options.
        system: the file system of pyarrow.
        path: of the file in it.
    """

    uri: str
    system: Any
    path: str

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str) -> Place:
        inner = f"{self.path.rstrip('/')}/{name}"
        return StorePlace(f"{self.uri.rstrip('/')}/{name}", self.system, inner)

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Place:
        uri, path = self.uri.rstrip("/"), self.path.rstrip("/")
        return StorePlace(uri.rpartition("/")[0], self.system, path.rpartition("/")[0])

    def facts(self) -> FileFacts | None:
        found = self._info()
        return _facts(found, self.name) if found.is_file else None

    def stamp(self) -> tuple[int, ...]:
        found = self.facts()
        if found is None:
            raise FileFormatError(f"{self}: {self._missing()}")
        return (found.size, found.changed)

    def is_folder(self) -> bool:
        from pyarrow import fs

        return bool(self._info().type == fs.FileType.Directory)

    def open_input(self) -> IO[bytes]:
        with self._reading():
            file: IO[bytes] = self.system.open_input_file(self.path)
            return file

    def list(self) -> Iterator[FileFacts]:
        from pyarrow import fs

        base = self.path.rstrip("/")
        with self._reading():
            found = self.system.get_file_info(fs.FileSelector(base, recursive=True))
        for info in found:
            if info.is_file:
                yield _facts(info, info.path.removeprefix(base).lstrip("/"))

    def write_whole(self, content: bytes) -> None:
        with self._writing():
            self._send(self.path, iter([content]))
            self._check(len(content))

    def upload(self, path: Path) -> None:
        """Copy a file of this machine here, completely or not at all.

        An object appears when its last byte has arrived. A large one is sent under another name
        first, since it would appear with half its bytes if the sending is interrupted.
        """
        size = path.stat().st_size
        aside = AT_ONCE < size <= COPYABLE
        sent = f"{self.path}.{os.getpid()}.tmp" if aside else self.path
        with self._writing(), path.open("rb") as file:
            try:
                self._send(sent, iter(lambda: file.read(AT_ONCE), b""))
                if aside:
                    self.system.move(sent, self.path)
            except BaseException:
                if size > AT_ONCE:
                    self._drop(sent)
                raise
            self._check(size)

    def delete(self) -> None:
        with self._writing():
            self._drop(self.path)

    def _send(self, path: str, pieces: Iterator[bytes]) -> None:
        if not _is_flat(self.system):
            self.system.create_dir(path.rpartition("/")[0], recursive=True)
        with self.system.open_output_stream(path) as stream:
            for piece in pieces:
                stream.write(piece)

    def _check(self, size: int) -> None:
        found = self.facts()
        if found is None or found.size != size:
            held = "nothing" if found is None else f"{found.size} bytes"
            raise OutputError(
                f"{self}: {size} bytes were sent, and the store has {held}",
                remedy="Run it again; another program may be writing there.",
            )

    def _drop(self, path: str) -> None:
        try:
            self.system.delete_file(path)
        except FileNotFoundError:
            return

    def _info(self) -> Any:
        with self._reading():
            return self.system.get_file_info(self.path.rstrip("/"))

    def _missing(self) -> str:
        return "no such file in the store. Check the bucket and the key; both are case-sensitive."

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except CrediblyError:
            raise
        except FileNotFoundError as error:
            raise FileFormatError(f"{self}: {self._missing()}") from error
        except Exception as error:  # file systems raise errors of many kinds
            reason, remedy = _explain(error)
            raise FileFormatError(f"{self}: cannot be read ({reason}). {remedy}") from error

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except CrediblyError:
            raise
        except Exception as error:  # file systems raise errors of many kinds
            reason, remedy = _explain(error)
            raise OutputError(f"{self} cannot be written: {reason}", remedy=remedy) from error


def place_of(name: str | Path | Place) -> Place:
    """Return the file or folder that a path or a URI names; nothing is opened.

    Args:
        name: a path, `file://`, `s3://bucket/key`, `gs://bucket/key`, or a URI of any file system
            that pyarrow or fsspec knows. Credentials come from the environment or the usual files
            of the store. `s3://...?endpoint_override=HOST:PORT&scheme=http&region=NAME` names
            another server than Amazon's, as `AWS_ENDPOINT_URL` does.

    Example: see `Place`.
    """
    if isinstance(name, Place):
        return name
    uri = uri_of(name)
    if uri is None:
        return LocalPlace(local_path(name))
    load_extra("pyarrow.fs", extra="table", purpose=f"Reading and writing {uri}")
    bare, options = _split(uri)
    scheme, _, rest = bare.partition("://")
    require("@" not in rest.partition("/")[0] or scheme not in ("s3", "gs", "gcs"), "path",
            "a URI without credentials", f"{scheme}://...@...",
            "Put them into the environment, such as AWS_ACCESS_KEY_ID: names are "
            "written into results.")  # fmt: skip
    if scheme == "s3":
        known = {"endpoint_override", "region", "scheme"}
        unknown = sorted(options.keys() - known)
        require(
            not unknown, "path", f"options among {sorted(known)}", str(unknown), "See place_of."
        )
        return StorePlace(bare, _s3(rest.partition("/")[0], **options), unquote(rest))
    if scheme in ("gs", "gcs"):
        return StorePlace(bare, _gcs(**options), unquote(rest))
    return StorePlace(bare, *_other(uri))


def _split(uri: str) -> tuple[str, dict[str, str]]:
    """Take the options at the end of a URI off; a question mark of a glob is none."""
    bare, mark, query = uri.rpartition("?")
    if not mark or "=" not in query:
        return uri, {}
    return bare, dict(parse_qsl(query))


def _s3(bucket: str, endpoint_override: str = "", region: str = "", scheme: str = "") -> Any:
    endpoint = endpoint_override or os.environ.get("AWS_ENDPOINT_URL_S3", "")
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL", "")
    found, mark, host = endpoint.partition("://")
    endpoint, scheme = (host, scheme or found) if mark else (endpoint, scheme or "https")
    region = region or os.environ.get("AWS_REGION", "") or os.environ.get("AWS_DEFAULT_REGION", "")
    if not region:
        region = "us-east-1" if endpoint else _region_of(bucket)
    return _s3_system(endpoint, region, scheme)


@lru_cache(maxsize=32)  # one pool of connections for all files
def _s3_system(endpoint: str, region: str, scheme: str) -> Any:
    from pyarrow import fs

    return fs.S3FileSystem(
        endpoint_override=endpoint or None,
        scheme=scheme,
        region=region,
        connect_timeout=CONNECT,
        request_timeout=REQUEST,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        background_writes=False,  # an error of writing then belongs to the write
    )


def _region_of(bucket: str) -> str:
    from pyarrow import fs

    try:
        return str(fs.resolve_s3_region(bucket))
    except Exception as error:  # no network, or no such bucket
        reason, remedy = _explain(error)
        raise FileFormatError(
            f"s3://{bucket}: its region cannot be found ({reason}). {remedy} AWS_REGION names the "
            "region, and AWS_ENDPOINT_URL a server that is not Amazon's."
        ) from error


@lru_cache(maxsize=32)
def _gcs(endpoint_override: str = "", scheme: str = "https") -> Any:
    from pyarrow import fs

    return fs.GcsFileSystem(
        endpoint_override=endpoint_override or None,
        scheme=scheme,
        retry_time_limit=timedelta(seconds=REQUEST),
    )


def _other(uri: str) -> tuple[Any, str]:
    """Any other file system that pyarrow or fsspec knows."""
    from pyarrow import fs

    try:
        system, path = fs.FileSystem.from_uri(uri)
    except Exception:  # noqa: BLE001  # it does not know the scheme, or not these options
        scheme = uri.partition("://")[0]
        fsspec = load_extra("fsspec.core", extra="datasets", purpose=f"Reading {scheme}://")
        try:
            inner, path = fsspec.url_to_fs(uri)
        except Exception as error:  # libraries of file systems raise errors of many kinds
            raise FileFormatError(
                f"{uri}: no file system for {scheme}:// ({' '.join(str(error).split())}). "
                "credibly reads paths, s3://, gs://, and what pyarrow or fsspec can open here."
            ) from error
        system = fs.PyFileSystem(fs.FSSpecHandler(inner))
    return system, path


def _is_flat(system: Any) -> bool:
    """Whether folders need not be made: they are parts of names."""
    return system.type_name in ("s3", "gcs")


def _facts(info: Any, name: str) -> FileFacts:
    return FileFacts(name, int(info.size), int(info.mtime_ns or 0))


def _explain(error: Exception) -> tuple[str, str]:
    """What a store says, shortened, and what to do."""
    text = " ".join(str(error).split())
    reason = re.sub(r" \(Request ID:[^)]*\)", "", text.partition(". Detail:")[0])[:200]
    if _BUCKET.search(text):
        return reason, "Check the name of the bucket; it is not made by this."
    if _CREDENTIALS.search(text):
        return f"refused: {reason}", (
            "Check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, "
            "GOOGLE_APPLICATION_CREDENTIALS) and that they may do this here."
        )
    if _NETWORK.search(text):
        return f"not reachable: {reason}", (
            "Check the network and the address (AWS_ENDPOINT_URL), then run it again; finished "
            "shards are kept."
        )
    return reason, "Run it again; finished shards are kept."
