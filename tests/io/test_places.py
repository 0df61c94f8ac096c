"""Files of this machine and of a store are read, listed and written through the same methods."""

import hashlib
import time
from pathlib import Path

import pytest

import credibly as cr
from credibly.io import store_folder, store_place, stores
from credibly.io.places import local_path, uri_of
from credibly.io.store_folder import StoreFolder
from credibly.io.stores import place_of
from tests.object_store import s3_server

CONTENT = bytes(range(256)) * 5


@pytest.fixture(scope="module")
def store():
    with s3_server("bucket") as url:
        yield url


@pytest.fixture(params=["local", "file", "s3", "memory"])
def folder(request, tmp_path):
    if request.param == "s3":
        request.getfixturevalue("store")
    names = {
        "local": tmp_path / "data",
        "file": f"file://{tmp_path}/data",
        "s3": f"s3://bucket/{tmp_path.name}",
        "memory": f"memory://{tmp_path.name}",
    }
    return place_of(names[request.param])


def test_what_is_written_is_listed_read_and_deleted(folder):
    assert not folder.exists()
    (folder / "a.bin").write_whole(CONTENT)
    (folder / "inner" / "b.bin").write_whole(b"")
    listed = {file.name: file.size for file in folder.list()}
    assert listed == {"a.bin": len(CONTENT), "inner/b.bin": 0}
    assert folder.is_folder()
    a = place_of(folder) / "a.bin"
    assert (a.name, a.suffix, a.parent, a.size()) == ("a.bin", ".bin", folder, len(CONTENT))
    assert a.read_whole() == CONTENT
    assert a.checksum() == hashlib.sha256(CONTENT).hexdigest()
    with a.open_input() as file:
        file.seek(250)
        assert file.read(10) == CONTENT[250:260]
    a.write_whole(b"other")
    assert a.read_whole() == b"other"
    a.delete()
    a.delete()
    assert not a.exists()
    assert (folder / "inner" / "b.bin").exists()


def test_a_file_is_uploaded_whole(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(store_place, "AT_ONCE", 100)  # else only files over 64 MB go in pieces
    (tmp_path / "x.bin").write_bytes(CONTENT)
    (folder / "x.bin").upload(tmp_path / "x.bin")
    assert (folder / "x.bin").read_whole() == CONTENT
    assert [file.name for file in folder.list()] == ["x.bin"]


@pytest.mark.usefixtures("store")
def test_an_interrupted_upload_leaves_what_was_there(tmp_path, monkeypatch):
    monkeypatch.setattr(store_place, "AT_ONCE", 100)
    place, send = place_of("s3://bucket/kept.bin"), store_place.StorePlace._send
    place.write_whole(b"before")

    def broken(self, path, pieces):
        def few():
            yield next(pieces)
            raise KeyboardInterrupt

        send(self, path, few())

    monkeypatch.setattr(store_place.StorePlace, "_send", broken)
    (tmp_path / "x.bin").write_bytes(CONTENT)
    with pytest.raises(KeyboardInterrupt):
        place.upload(tmp_path / "x.bin")
    assert place.read_whole() == b"before"
    assert [f.name for f in place_of("s3://bucket").list() if "kept" in f.name] == ["kept.bin"]


def test_missing_files_and_buckets_are_named(folder):
    with pytest.raises(cr.errors.FileFormatError, match=r"none\.bin"):
        (folder / "none.bin").open_input()
    with pytest.raises(cr.errors.FileFormatError, match=r"none\.bin"):
        (folder / "none.bin").size()


@pytest.mark.usefixtures("store")
def test_a_missing_bucket_is_not_made():
    with pytest.raises(cr.errors.OutputError, match=r"Check the name of the bucket"):
        place_of("s3://nobody/x").write_whole(b"x")
    with pytest.raises(cr.errors.FileFormatError, match=r"Check the name of the bucket"):
        list(place_of("s3://nobody/x").list())


def test_a_server_that_is_not_there_is_an_error_soon(monkeypatch):
    monkeypatch.setattr(stores, "ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    place = place_of("s3://bucket/x?endpoint_override=127.0.0.1:1&scheme=http&region=here")
    with pytest.raises(cr.errors.FileFormatError, match=r"not reachable.*AWS_ENDPOINT_URL"):
        place.stamp()
    with pytest.raises(cr.errors.OutputError, match=r"not reachable.*finished shards are kept"):
        place.write_whole(b"x")


@pytest.mark.parametrize(
    "words", ["ACCESS_DENIED during GetObject", "INVALID_ACCESS_KEY_ID", "403"]
)
def test_refused_credentials_say_where_they_come_from(words):
    class Refusing:
        type_name = "s3"

        def get_file_info(self, _):
            raise OSError(f"AWS Error {words}: no")

        open_output_stream = get_file_info

    place = store_place.StorePlace("s3://bucket/x", Refusing(), "bucket/x")
    with pytest.raises(cr.errors.FileFormatError, match=r"refused.*AWS_ACCESS_KEY_ID"):
        place.facts()
    with pytest.raises(cr.errors.OutputError, match=r"refused.*AWS_ACCESS_KEY_ID"):
        place.write_whole(b"x")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("s3://key:secret@bucket/x", "without credentials"),
        ("s3://bucket/x?acl=public", "endpoint_override"),
        ("nowhere://bucket/x", "no file system for nowhere://"),
    ],
)
def test_names_that_mean_nothing_are_refused(name, words):
    with pytest.raises(cr.errors.CrediblyError, match=words) as found:
        place_of(name)
    assert "secret" not in str(found.value)


def test_a_path_of_a_uri_means_the_uri():
    server = "s3://bucket/a?endpoint_override=http://127.0.0.1:5"
    assert uri_of(Path(server)) == server
    assert uri_of(Path("s3://bucket/a b")) == "s3://bucket/a b"
    assert uri_of("data/x.npy") is None
    assert uri_of("C:/data/x.npy") is None
    assert uri_of("file:///data") is None
    assert local_path(Path("file:///data/x.npy")) == Path("/data/x.npy")
    assert place_of("data/x.npy").is_local


def test_a_lock_in_a_store_is_removed_by_its_owner_only(store, monkeypatch):  # noqa: ARG001
    monkeypatch.setattr(store_folder, "RENEWED", 0.05)
    folder = StoreFolder(place_of("s3://bucket/run.parts"))
    lock = folder.place / store_folder.LOCK
    with folder.lock():
        own = lock.read_whole()
    assert not lock.exists()
    with folder.lock():  # this one is late, and another run takes over
        lock.write_whole(other := own.replace(b"owner", b"thief"))
        time.sleep(0.2)
        assert lock.read_whole() == other  # nor is it renewed
    assert lock.read_whole() == other
