"""The IDX reader takes good files, and names the bad ones."""

import gzip
import struct

import numpy as np
import pytest

from credibly.errors import FileFormatError
from experiments.idx import idx_bytes, parse_idx, read_idx

IMAGES = np.random.default_rng(0).integers(0, 256, size=(3, 4, 5), dtype=np.uint8)


def _header(*shape):
    return b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


def _encode(array):
    return _header(*array.shape) + array.tobytes()


def _zip(content):
    return gzip.compress(content, mtime=0)


def _refusal(path, content):
    path.write_bytes(content)
    with pytest.raises(FileFormatError) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


HOSTILE = {
    "empty": (b"", "not an IDX file"),
    "shorter than the magic number": (b"\0\0\x08", "not an IDX file"),
    "text": (b"<html>404 Not Found</html>", "not an IDX file"),
    "first byte": (b"\x01\0\x08\x01" + b"\0\0\0\1" + b"a", "not an IDX file"),
    "signed bytes": (b"\0\0\x09\x01" + b"\0\0\0\1" + b"a", "not an IDX file"),
    "floats": (b"\0\0\x0d\x01" + b"\0\0\0\1" + b"abcd", "not an IDX file"),
    "no dimensions": (b"\0\0\x08\0" + b"a", "header"),
    "header cut short": (b"\0\0\x08\x03" + b"\0\0\0\1" * 2, "cut short"),
    "one byte missing": (_encode(IMAGES)[:-1], "60 bytes for shape (3, 4, 5), but 59 follow"),
    "one byte too many": (_encode(IMAGES) + b"a", "60 bytes for shape (3, 4, 5), but 61 follow"),
    "absurd shape": (_header(2**32 - 1, 2**32 - 1, 28), "absurd shape"),
    "a shape that overflows 64 bits to nothing": (_header(2**31, 2**31, 4), "absurd shape"),
    "255 dimensions": (_header(*[1] * 255) + b"a", "255"),
    "absurd shape around a zero": (_header(0, *[2**32 - 1] * 3), "absurd shape"),
}


@pytest.mark.parametrize("shape", [(7,), (2, 3), (3, 4, 5), (1, 2, 3, 4), (0, 28, 28)])
@pytest.mark.parametrize("pack", [bytes, _zip], ids=["plain", "gzipped"])
def test_what_was_written_is_read_back(tmp_path, shape, pack):
    array = np.random.default_rng(1).integers(0, 256, size=shape, dtype=np.uint8)
    path = tmp_path / "images-idx-ubyte"
    path.write_bytes(pack(_encode(array)))
    found = read_idx(path)
    assert found.dtype == np.uint8
    assert found.shape == shape
    np.testing.assert_array_equal(found, array)


def test_the_path_may_be_text(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(_zip(_encode(IMAGES)))
    np.testing.assert_array_equal(read_idx(str(path)), IMAGES)


def test_gzip_is_told_by_content_and_not_by_name(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(_encode(IMAGES))
    np.testing.assert_array_equal(read_idx(path), IMAGES)


def test_the_bytes_are_the_same_gzipped_or_not(tmp_path):
    plain, zipped = tmp_path / "plain", tmp_path / "zipped"
    plain.write_bytes(_encode(IMAGES))
    zipped.write_bytes(_zip(_encode(IMAGES)))
    assert idx_bytes(plain) == idx_bytes(zipped) == _encode(IMAGES)


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        read_idx(tmp_path / "absent")


@pytest.mark.parametrize("pack", [bytes, _zip], ids=["plain", "gzipped"])
@pytest.mark.parametrize("fault", HOSTILE)
def test_a_damaged_file_is_refused_by_name(tmp_path, fault, pack):
    content, message = HOSTILE[fault]
    assert message in _refusal(tmp_path / "damaged-idx", pack(content))


@pytest.mark.parametrize("pack", [bytes, _zip], ids=["plain", "gzipped"])
def test_a_file_cut_anywhere_is_refused(tmp_path, pack):
    content = pack(_encode(IMAGES))
    for length in range(len(content)):
        _refusal(tmp_path / "cut-idx", content[:length])


def test_a_gzip_file_with_any_byte_of_its_body_changed_is_refused(tmp_path):
    content = _zip(_encode(IMAGES))
    for position in range(10, len(content)):  # the ten bytes before say when and where it was made
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        assert "gzip" in _refusal(tmp_path / "broken.gz", bytes(damaged))


def test_rubbish_after_a_gzip_file_is_refused(tmp_path):
    assert "gzip" in _refusal(tmp_path / "long.gz", _zip(_encode(IMAGES)) + b"rubbish")


def test_bytes_that_are_parsed_are_called_by_the_name_that_was_given():
    np.testing.assert_array_equal(parse_idx(_encode(IMAGES), name="train"), IMAGES)
    with pytest.raises(FileFormatError, match=r"^train: "):
        parse_idx(b"nonsense", name="train")
