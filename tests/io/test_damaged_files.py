"""Whatever a file declares or lacks ends in an error of ours, and takes no memory on its word."""

import io
import json
import struct
import sys
import tracemalloc
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save, save_file

import credibly as cr
from credibly.io.labels import read_labels

VALUES = np.random.default_rng(0).normal(size=(30, 4))


def array_bytes(shape, content=b"", dtype="<f8"):
    """An array whose header declares a shape, whatever follows."""
    file = io.BytesIO()
    header = {"descr": dtype, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue() + content


def plain(content):
    return lambda path: path.with_suffix(".npy").write_bytes(content)


def archive(content, **options):
    def write(path):
        with zipfile.ZipFile(path.with_suffix(".npz"), "w", **options) as file:
            file.writestr("x.npy", content)

    return write


def patched_archive(position, value, *, directory):
    """An archive whose local header or directory says something else."""

    def write(path):
        file = io.BytesIO()
        np.savez_compressed(file, x=VALUES)
        content = bytearray(file.getvalue())
        begin = content.rindex(b"PK\x01\x02") if directory else content.index(b"PK\x03\x04")
        content[begin + position : begin + position + len(value)] = value
        path.with_suffix(".npz").write_bytes(content)

    return write


def damaged_stream(path):
    file = io.BytesIO()
    np.savez_compressed(file, x=VALUES)
    content = bytearray(file.getvalue())
    content[200:260] = bytes(60)
    path.with_suffix(".npz").write_bytes(content)


def tensors(header, length=None):
    def write(path):
        text = json.dumps(header).encode()
        size = struct.pack("<Q", len(text) if length is None else length)
        path.with_suffix(".safetensors").write_bytes(size + text + bytes(64))

    return write


def words_in_another_encoding(path):
    column = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(struct.pack("<3i", 0, 1, 2)), pa.py_buffer(b"\xff\xfe")]
    )
    pq.write_table(pa.table({"a": column}), path.with_suffix(".parquet"))


HUGE = 10**13
DAMAGE = {
    "a shape larger than the file": plain(array_bytes((HUGE, 2))),
    "a row larger than the file": plain(array_bytes((2, HUGE))),
    "a negative shape": plain(array_bytes((-3, -2), bytes(48))),
    "a shape beyond all numbers": plain(array_bytes((10**300, 2))),
    "a header that is no Python": plain(b"\x93NUMPY\x01\x00\x08\x00{'a': ([\n"),
    "a header that never ends": plain(b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{" + bytes(90)),
    "a header in another encoding": plain(b"\x93NUMPY\x03\x00\x04\x00\x00\x00\xff\xfe\xff\xfe"),
    "a member that declares more than it has": archive(array_bytes((HUGE, 2))),
    "a stored member that declares more": archive(array_bytes((99, 2), bytes(800))),
    "a compression that NumPy does not use": archive(
        array_bytes((9, 2), bytes(144)), compression=zipfile.ZIP_BZIP2
    ),
    "an unknown compression": patched_archive(10, b"\x09\x00", directory=True),
    "a member with a password": patched_archive(8, b"\x01\x00", directory=True),
    "a directory that points elsewhere": patched_archive(42, b"\x09", directory=True),
    "a damaged stream": damaged_stream,
    "an archive that is none": lambda path: path.with_suffix(".npz").write_bytes(b"PK\x03\x04"),
    "tensors beyond the end": tensors(
        {"x": {"dtype": "F64", "shape": [HUGE, 4], "data_offsets": [0, 32 * HUGE]}}
    ),
    "tensors before the start": tensors(
        {"x": {"dtype": "F64", "shape": [2, 4], "data_offsets": [-64, 0]}}
    ),
    "tensors of another size": tensors(
        {"x": {"dtype": "F64", "shape": [9, 4], "data_offsets": [0, 64]}}
    ),
    "a header longer than the file": tensors({}, length=2**62),
    "a header that is no mapping": tensors([1]),
}


def read_all(path):
    source = cr.open_source(path)
    return source.read(0, len(source))


def test_sizes_in_a_directory_that_are_not_true_are_not_believed(tmp_path):
    patched_archive(20, b"\xff\xff\xff\x7f" * 2, directory=True)(tmp_path / "x")
    try:
        found = read_all(tmp_path / "x.npz")[1]
    except cr.errors.FileFormatError:
        return  # newer Pythons refuse such archives themselves
    assert np.array_equal(found, VALUES)


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_a_file_format_error_that_costs_no_memory(tmp_path, name):
    DAMAGE[name](tmp_path / "x")
    (path,) = tmp_path.iterdir()
    tracemalloc.start()
    with pytest.raises(cr.errors.FileFormatError, match=r"x\.(npy|npz|safetensors)"):
        read_all(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_of_a_bomb_only_what_is_asked_for_is_unpacked(tmp_path):
    rows = 200_000
    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as file,
        file.open("x.npy", "w") as member,
    ):
        member.write(array_bytes((rows, 128)))
        for _ in range(200):
            member.write(bytes(rows // 200 * 128 * 8))
    assert (tmp_path / "x.npz").stat().st_size < 1e6  # of 200 MB
    tracemalloc.start()
    source = cr.open_source(tmp_path / "x.npz")
    ids, x = source.read(0, 64)
    assert x.shape == (64, 128)
    source.read(rows - 64, rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
    assert ids == list(range(64))


def test_arrays_by_columns_and_of_more_axes_are_read_by_position(tmp_path):
    for shape in ((30, 4), (10, 3, 2, 2)):
        whole = np.asfortranarray(np.random.default_rng(1).normal(size=shape))
        np.save(tmp_path / "x.npy", whole)
        source = cr.open_source(tmp_path / "x.npy")
        for start, stop in ((0, 3), (2, 9), (5, 5), (0, len(whole))):
            assert np.array_equal(source.read(start, stop)[1].numpy(), whole[start:stop])


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int16, torch.uint8, torch.bool]
)
def test_tensors_are_read_as_the_library_reads_them(tmp_path, dtype):
    values = {"a": torch.randn(3), "x": (4 * torch.rand(9, 2, 3)).to(dtype), "z": torch.ones(2)}
    save_file(values, tmp_path / "x.safetensors", metadata={"some": "facts"})
    scale = None if dtype.is_floating_point else 1
    source = cr.open_source(tmp_path / "x.safetensors", key="x", scale=scale)
    assert torch.equal(source.read(2, 7)[1], values["x"][2:7].float())
    assert len(source.read(4, 4)[1]) == 0


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (
            lambda path: np.save(path.with_suffix(".npy"), np.array([2**64 - 1], np.uint64)),
            "0 to 1",
        ),
        (lambda path: np.save(path.with_suffix(".npy"), np.array([1e300])), "not whole"),
        (lambda path: np.save(path.with_suffix(".npy"), np.array(["9" * 30])), "'9999"),
        (
            lambda path: path.with_suffix(".npy").write_bytes(
                array_bytes((1,), b"\xff\xff\xff\x7f", "<U1")
            ),
            "cannot be read",
        ),
        (words_in_another_encoding, "not a readable table"),
        (
            lambda path: pq.write_table(
                pa.table({"a": [[1], [1, 2]]}), path.with_suffix(".parquet")
            ),
            "one number or name per row",
        ),
    ],
)
def test_labels_that_are_none_are_an_error_of_ours(tmp_path, write, words):
    write(tmp_path / "x")
    (path,) = tmp_path.iterdir()
    with pytest.raises(cr.errors.CrediblyError, match=words):
        read_labels(path, None, classes=2)


def test_labels_in_half_precision_are_read(tmp_path):
    labels = torch.tensor([0, 1, 1], dtype=torch.bfloat16)
    (tmp_path / "y.safetensors").write_bytes(save({"y": labels}))
    assert read_labels(tmp_path / "y.safetensors", None, classes=2).tolist() == [0, 1, 1]


def test_ids_in_another_encoding_are_written_in_hex(tmp_path):
    words_in_another_encoding(tmp_path / "words")
    table = pq.read_table(tmp_path / "words.parquet").append_column("b", pa.array([1.0, 2.0]))
    pq.write_table(table, tmp_path / "x.parquet")
    ids, _ = cr.open_source(tmp_path / "x.parquet", id_column="a").read(0, 2)
    assert ids == ["\\xff", "\\xfe"]


@pytest.mark.parametrize("cut", [5, 40, 400])
def test_a_parquet_file_that_is_cut_or_damaged_is_named(tmp_path, cut):
    pd.DataFrame(VALUES).rename(columns=str).to_parquet(tmp_path / "x.parquet")
    content = bytearray((tmp_path / "x.parquet").read_bytes())
    content[-cut - 8 : -8] = b"\xff" * cut
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(cr.errors.FileFormatError, match=r"x\.parquet: not a readable table"):
        cr.open_source(tmp_path / "x.parquet")


def test_rows_of_one_large_row_group_are_decoded_in_pieces(tmp_path):
    rows = 200_000
    columns = {f"x{k}": np.random.default_rng(k).normal(size=rows) for k in range(8)}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", use_dictionary=False)
    source = cr.open_source(tmp_path / "x.parquet")
    before = pa.default_memory_pool().bytes_allocated()
    held = 0
    for start in range(0, 50_000, 500):
        x = source.read(start, start + 500)[1]
        held = max(held, pa.default_memory_pool().bytes_allocated() - before)
    assert np.array_equal(x[:, 3], columns["x3"][49_500:50_000])
    assert held < rows * 8 * 8 * 0.75  # of 13 MB; pyarrow 17 holds more of it than later ones


@pytest.mark.skipif(sys.platform == "win32", reason="pages are those of POSIX")
def test_a_file_that_shrinks_is_an_error_and_no_signal(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((100_000, 4)))
    source = cr.open_source(tmp_path / "x.npy")
    with (tmp_path / "x.npy").open("rb+") as file:
        file.truncate(5000)
    with pytest.raises(cr.errors.FileFormatError, match=r"x\.npy: became shorter"):
        source.read(90_000, 90_010)
