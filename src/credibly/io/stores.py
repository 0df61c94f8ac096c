"""`place_of`: the place that a path or a URI names; S3, Google Cloud Storage, any of fsspec.

Waiting is bounded: a store that cannot be reached is an error after a minute, not a run that hangs.
"""

from __future__ import annotations

import os
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from credibly._extras import load_extra
from credibly._validation import require
from credibly.errors import FileFormatError
from credibly.io.places import LocalPlace, Place, local_path, uri_of
from credibly.io.store_place import StorePlace, explain

CONNECT, REQUEST, ATTEMPTS = 10.0, 60.0, 3
"""Seconds to connect and to wait for an answer, and how often a request is tried."""


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
        reason, remedy = explain(error)
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
