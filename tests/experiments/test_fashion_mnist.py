import struct

import pytest

import credibly as cr
from experiments import fashion_mnist


def test_a_folder_without_the_files_says_where_they_come_from(tmp_path):
    with pytest.raises(FileNotFoundError, match="dataset-fashion-mnist"):
        fashion_mnist.load(tmp_path, "test")


def test_other_bytes_than_the_published_ones_are_refused(tmp_path):
    content = b"\0\0\x08\x01" + struct.pack(">I", 3) + bytes(3)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(content)
    with pytest.raises(cr.errors.FileFormatError, match="not the published 5b4141f0"):
        fashion_mnist.load(tmp_path, "test")
