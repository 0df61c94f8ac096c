"""Readers give the same rows however they are asked, and say clearly what is wrong with a file."""

import sys

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file

import credibly as cr
from credibly.io import table_files

ROWS = 53
VALUES = np.random.default_rng(0).normal(size=(ROWS, 3))
VALUES[7, 1] = np.nan  # a missing value


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("sources")
    np.save(path / "a.npy", VALUES)
    np.savez_compressed(path / "a.npz", x=VALUES, labels=np.arange(ROWS))
    save_file({"x": torch.from_numpy(VALUES)}, path / "a.safetensors")
    frame = pd.DataFrame(VALUES, columns=["p", "q", "r"])
    frame["name"] = [f"row {n}" for n in range(ROWS)]
    frame["label"] = "cat"
    frame.to_csv(path / "a.csv", index=False)
    frame.to_csv(path / "a.tsv", index=False, sep="\t")
    frame.to_parquet(path / "a.parquet", row_group_size=10)
    (path / "images" / "inner").mkdir(parents=True)
    for n in range(ROWS):
        pixels = np.full((2, 3), n, np.uint8)
        Image.fromarray(pixels).save(path / "images" / "inner" / f"{n:03d}.png")
    return path


OPTIONS = {
    "a.npy": {},
    "a.npz": {},
    "a.safetensors": {},
    "a.csv": {"id_column": "name", "drop": ["label"]},
    "a.tsv": {"columns": ["p", "q", "r"], "id_column": "name"},
    "a.parquet": {"id_column": "name", "drop": ["label"]},
    "images": {},
}


def expected_of(name):
    if name == "images":
        grey = torch.arange(ROWS).reshape(-1, 1, 1, 1).expand(-1, 1, 2, 3).float() / 255
        return [f"inner/{n:03d}.png" for n in range(ROWS)], grey
    ids = [f"row {n}" for n in range(ROWS)] if "id_column" in OPTIONS[name] else list(range(ROWS))
    return ids, torch.from_numpy(VALUES)


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch):
    monkeypatch.setattr(table_files, "BLOCK", 400)  # about five lines
    monkeypatch.setattr(table_files, "BATCH", 4)


@pytest.fixture(scope="module")
def opened(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_files, "BLOCK", 400)
        return {name: cr.open_source(folder / name, **OPTIONS[name]) for name in OPTIONS}


@pytest.mark.parametrize("name", OPTIONS)
@given(ends=st.tuples(st.integers(0, ROWS), st.integers(0, ROWS + 9)).map(sorted))
def test_any_range_of_rows_is_a_slice_of_the_whole(opened, name, ends):
    ids, whole = expected_of(name)
    found_ids, x = opened[name].read(*ends)
    assert found_ids == ids[slice(*ends)]
    torch.testing.assert_close(x, whole[slice(*ends)], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", OPTIONS)
def test_a_source_tells_its_rows_shape_and_fingerprint(folder, opened, name):
    source = opened[name]
    whole = expected_of(name)[1]
    assert len(source) == ROWS
    assert source.shape == whole.shape[1:]
    assert source.describe()["rows"] == ROWS
    again = cr.open_source(folder / name, **OPTIONS[name])
    assert again.fingerprint() == source.fingerprint()
    assert len(source.fingerprint()) == 64


@pytest.mark.parametrize("name", OPTIONS)
def test_a_limit_takes_the_first_rows(folder, name):
    source = cr.open_source(folder / name, **OPTIONS[name], limit=5)
    assert len(source) == 5
    assert len(source.read(0, 100)[1]) == 5


@pytest.mark.parametrize("ends", [(-1, 3), (3, 2), (0.5, 2)])
def test_impossible_ranges_are_refused(opened, ends):
    with pytest.raises(cr.errors.InvalidArgumentError, match="0 <= start <= stop"):
        opened["a.npy"].read(*ends)


def test_another_content_has_another_fingerprint(folder, tmp_path):
    changed = VALUES.copy()
    changed[0, 0] += 1e-9
    np.save(tmp_path / "a.npy", changed)
    before = cr.open_source(folder / "a.npy").fingerprint()
    assert cr.open_source(tmp_path / "a.npy").fingerprint() != before


def test_bytes_need_a_scale_and_are_divided_by_it(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[0, 255], [51, 102]], np.uint8))
    with pytest.raises(cr.errors.InvalidArgumentError, match="--scale 255"):
        cr.open_source(tmp_path / "a.npy")
    _, x = cr.open_source(tmp_path / "a.npy", scale=255).read(0, 2)
    torch.testing.assert_close(x, torch.tensor([[0.0, 1.0], [0.2, 0.4]]))


@pytest.mark.parametrize("dtype", [">f4", "<f2", "f8", "i8"])
@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_other_widths_and_byte_orders_are_read(tmp_path, dtype, ending):
    array = np.arange(6).reshape(3, 2).astype(dtype)
    path = tmp_path / f"a{ending}"
    np.save(path, array) if ending == ".npy" else np.savez(path, a=array)
    _, x = cr.open_source(path, scale=2).read(0, 3)
    assert x.dtype in (torch.float32, torch.float64)
    assert x.tolist() == (np.arange(6).reshape(3, 2) / 2).tolist()


def test_half_precision_tensors_become_single(tmp_path):
    save_file({"a": torch.tensor([[1.5, 2.0]], dtype=torch.bfloat16)}, tmp_path / "a.safetensors")
    _, x = cr.open_source(tmp_path / "a.safetensors").read(0, 1)
    assert x.dtype == torch.float32
    assert x.tolist() == [[1.5, 2.0]]


def test_several_floating_arrays_need_a_key(tmp_path):
    np.savez(tmp_path / "a.npz", left=np.ones((2, 2)), right=np.zeros((2, 2)))
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"left \(2, 2\).*right \(2, 2\)"):
        cr.open_source(tmp_path / "a.npz")
    assert cr.open_source(tmp_path / "a.npz", key="right").read(0, 1)[1].tolist() == [[0.0, 0.0]]
    with pytest.raises(cr.errors.InvalidArgumentError, match="'middle'"):
        cr.open_source(tmp_path / "a.npz", key="middle")


def objects(path):
    np.save(path / "a.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    return path / "a.npy"


def object_archive(path):
    np.savez(path / "a.npz", a=np.array([[{}]], dtype=object))
    return path / "a.npz"


def cut_short(path):
    np.save(path / "a.npy", VALUES)
    (path / "a.npy").write_bytes((path / "a.npy").read_bytes()[:-100])
    return path / "a.npy"


def flat(path):
    np.save(path / "a.npy", np.ones(5))
    return path / "a.npy"


def empty_array(path):
    np.save(path / "a.npy", np.ones((0, 5)))
    return path / "a.npy"


def complex_numbers(path):
    np.save(path / "a.npy", np.ones((2, 2), complex))
    return path / "a.npy"


def text(name, content):
    def write(path):
        (path / name).write_bytes(content)
        return path / name

    return write


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (objects, "does not hold real numbers"),
        (object_archive, "does not hold real numbers"),
        (cut_short, "not a readable npy file"),
        (flat, "sample axis first"),
        (empty_array, "holds no rows"),
        (complex_numbers, "does not hold real numbers"),
        (text("a.npy", b""), "not a readable npy file"),
        (text("a.npz", b"PK nonsense"), "not a readable npz file"),
        (text("a.safetensors", b"nonsense"), "not a readable safetensors"),
        (text("a.parquet", b"nonsense"), "not a readable table"),
        (text("a.csv", b""), "must name the columns"),
        (text("a.csv", b"a,b\n"), "holds no rows"),
        (text("a.csv", b"a,b\n1,2\n3\n"), "Expected 2 columns, got 1"),
        (text("a.csv", b"a,a\n1,2\n"), "more than once"),
        (text("a.csv", b"1.5,2.5\n1,2\n"), "looks like data"),
        (text("a.csv", b"a;b\n1,5;2,5\n"), r"by semicolons, and commas.*sep=';'.*decimal=','"),
        (text("a.csv", b"a\tb\n1\t2\n"), "by tabs, and commas are needed"),
        (text("a.tsv", b"a,b\n1,2\n"), "by commas, and tabs are needed"),
        (text("a.csv", b"a,b\n1,2\n3,x\n"), r"column 'b' holds 'x' in data row 1 "),
        (text("a.csv", b"a,\xff\n1,2\n"), "not a readable table"),
        (text("a.txt", b"1 2 3"), "unknown format '.txt'"),
        (lambda path: path / "nowhere.npy", "no such file"),
        (lambda path: path, "no images"),
    ],
)
def test_bad_files_are_named_with_what_is_wrong(tmp_path, make, words):
    with pytest.raises(cr.errors.FileFormatError, match=words):
        cr.open_source(make(tmp_path))


def test_a_word_far_down_a_table_is_found_before_any_work(tmp_path):
    lines = ["a,b", *(f"{n},{n}" for n in range(500)), "500,many", "501,1"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(cr.errors.FileFormatError, match="'b' holds 'many' in data row 500"):
        cr.open_source(tmp_path / "a.csv")


def test_missing_values_spaces_and_infinity_in_a_table(tmp_path):
    (tmp_path / "a.csv").write_text("a,b\n 1 ,2e3\n,4\nNA,inf\n")
    _, x = cr.open_source(tmp_path / "a.csv").read(0, 3)
    nan, inf = float("nan"), float("inf")
    expected = torch.tensor([[1, 2000], [nan, 4], [nan, inf]], dtype=torch.float64)
    torch.testing.assert_close(x, expected, equal_nan=True)


def test_whole_numbers_booleans_and_nulls_in_parquet(tmp_path):
    frame = pd.DataFrame({"n": [2, 3], "b": [True, False], "f": [1.5, None], "id": [40, 41]})
    frame.to_parquet(tmp_path / "a.parquet")
    source = cr.open_source(tmp_path / "a.parquet", id_column="id")
    ids, x = source.read(0, 2)
    assert ids == [40, 41]
    assert source.id_type == "int64"
    assert x[0].tolist() == [2.0, 1.0, 1.5]
    assert bool(x[1, 2].isnan())


def test_a_column_of_words_in_parquet_is_named(tmp_path):
    pd.DataFrame({"a": [1.0], "b": ["x"]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(cr.errors.FileFormatError, match="'b' holds 'x' in data row 0"):
        cr.open_source(tmp_path / "a.parquet")


def test_an_unknown_column_is_answered_with_those_there_are(folder):
    with pytest.raises(cr.errors.InvalidArgumentError, match="p, q, r, name, label"):
        cr.open_source(folder / "a.csv", drop=["lable"])


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("a.npy", {"key": "x"}),
        ("a.npz", {"columns": ["x"]}),
        ("a.csv", {"scale": 255}),
        ("images", {"scale": 255}),
        ("a.parquet", {"size": 3}),
    ],
)
def test_options_that_would_be_ignored_are_refused(folder, name, option):
    with pytest.raises(cr.errors.InvalidArgumentError, match=next(iter(option))):
        cr.open_source(folder / name, **option)


@pytest.mark.parametrize(
    "option", [{"scale": 0}, {"scale": "x"}, {"limit": 0}, {"limit": 1.5}, {"mode": "cmyk"}]
)
def test_bad_options_are_refused(folder, option):
    with pytest.raises(cr.errors.InvalidArgumentError, match=next(iter(option))):
        cr.open_source(folder / "a.npy", **option)


def test_a_broken_image_is_a_row_of_nan_and_costs_no_other(folder, tmp_path):
    first = (folder / "images" / "inner" / "003.png").read_bytes()
    (tmp_path / "a.png").write_bytes(first)
    (tmp_path / "b.png").write_bytes(b"not an image")
    (tmp_path / "c.png").write_bytes(first[:-30])
    (tmp_path / "d.png").write_bytes(first)
    (tmp_path / "notes.txt").write_text("ignored")
    ids, x = cr.open_source(tmp_path).read(0, 9)
    assert ids == ["a.png", "b.png", "c.png", "d.png"]
    assert x.isnan().flatten(1).all(1).tolist() == [False, True, True, False]
    torch.testing.assert_close(x[3], torch.full((1, 2, 3), 3 / 255))


def test_images_of_different_sizes_need_a_size(tmp_path):
    Image.new("RGB", (4, 2)).save(tmp_path / "wide.png")
    Image.new("RGB", (2, 4)).save(tmp_path / "tall.png")
    with pytest.raises(cr.errors.FileFormatError, match=r"tall.png is \(3, 4, 2\), wide.png is"):
        cr.open_source(tmp_path)
    assert cr.open_source(tmp_path, size=(5, 6)).read(0, 2)[1].shape == (2, 3, 5, 6)
    assert cr.open_source(tmp_path, size=5, mode="grey").read(0, 2)[1].shape == (2, 1, 5, 5)


def test_channels_come_first_and_white_is_one(tmp_path):
    pixels = np.zeros((2, 3, 3), np.uint8)
    pixels[1, 2] = (255, 0, 51)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    _, x = cr.open_source(tmp_path).read(0, 1)
    assert x.shape == (1, 3, 2, 3)
    torch.testing.assert_close(x[0, :, 1, 2], torch.tensor([1.0, 0.0, 0.2]))
    Image.fromarray(np.full((2, 3), 65535, np.uint16)).save(tmp_path / "a.png")
    assert cr.open_source(tmp_path).read(0, 1)[1].tolist() == [[[[1.0] * 3] * 2]]


def test_a_folder_without_a_single_good_image_is_refused(tmp_path):
    (tmp_path / "a.png").write_bytes(b"")
    with pytest.raises(cr.errors.FileFormatError, match="none of 1 images can be read"):
        cr.open_source(tmp_path)


@pytest.mark.parametrize("size", [0, (1, 2, 3), "big", (1.5, 2)])
def test_bad_sizes_are_refused(folder, size):
    with pytest.raises(cr.errors.InvalidArgumentError, match="size"):
        cr.open_source(folder / "images", size=size)


@pytest.mark.parametrize(
    ("name", "package", "extra"), [("images", "PIL", "images"), ("a.csv", "pyarrow", "table")]
)
def test_a_missing_library_is_named(folder, monkeypatch, name, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "PIL.Image", raising=False)
    with pytest.raises(cr.errors.MissingExtraError, match=rf"credibly\[{extra}\]"):
        cr.open_source(folder / name)


def test_a_limit_ends_the_look_at_a_table(tmp_path):
    lines = ["a,b", *(f"{n},{n}" for n in range(500)), "500,many"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert len(cr.open_source(tmp_path / "a.csv", limit=9)) == 9


def test_an_array_of_one_axis_is_told_what_it_lacks(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones(5))
    with pytest.raises(cr.errors.InvalidArgumentError, match=r"None of them is a batch.*x\[None\]"):
        cr.open_source(tmp_path / "a.npz")


def test_the_index_that_pandas_wrote_is_told_as_such(tmp_path):
    path = tmp_path / "a.csv"
    pd.DataFrame({"a": [1.0], "b": [2.0]}).to_csv(path)
    clf = cr.Classifier(lambda x: x, space=cr.Space(columns=["a", "b"]))
    with pytest.raises(cr.errors.InvalidArgumentError, match="index=False"):
        cr.open_source(path).for_model(clf)
