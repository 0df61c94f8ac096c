"""Damage led by coverage: a clear word without atheris, and a search that keeps what it finds."""

import importlib.util

import pytest

from credibly.errors import FileFormatError
from fuzz.guided import FORMATS, MISSING, Reader, main


def blindly(data, _):
    return data + b"x"


@pytest.fixture
def reader(tmp_path):
    (tmp_path / "keep").mkdir()
    return Reader("npy", tmp_path, tmp_path / "keep")


def test_without_atheris_it_says_what_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert main(["npy"]) == 2
    assert capsys.readouterr().out == MISSING + "\n"


@pytest.mark.parametrize("name", FORMATS)
def test_the_files_it_begins_with_are_good(name, tmp_path):
    reader = Reader(name, tmp_path, tmp_path)
    for path in sorted(reader.seeds.iterdir()):
        reader.file.write_bytes(path.read_bytes())
        reader.kind.read(reader.file.parent)


def test_errors_of_the_package_pass_and_others_are_kept_once(reader, monkeypatch, capsys):
    reader.look(b"no array at all")
    assert capsys.readouterr().out == ""

    def breaks(data):
        raise KeyError(data) if data else FileFormatError

    monkeypatch.setattr(reader, "read", breaks)
    reader.look(b"a")
    reader.look(b"b")
    assert [path.read_bytes() for path in reader.keep.iterdir()] == [b"a"]
    assert capsys.readouterr().out.startswith("  find: KeyError in ")


def test_damage_knows_the_format_where_there_is_one(reader):
    good = reader.file.name and (reader.seeds / reader.file.name).read_bytes()
    made = {reader.mutate(good, 1 << 16, seed, blindly) for seed in range(40)}
    assert good + b"x" in made
    assert len(made) > 3
    assert {reader.mutate(b"?", 1 << 16, seed, blindly) for seed in range(9)} == {b"?x"}
    assert max(len(reader.mutate(good, 50, seed, lambda d, n: d[:n])) for seed in range(9)) == 50


def test_a_find_can_be_repeated(tmp_path, reader, capsys):
    good = reader.seeds / reader.file.name
    assert main(["npy", "--repeat", str(good)]) == 0
    assert "an answer" in capsys.readouterr().out
    with pytest.raises(FileNotFoundError):
        main(["npy", "--repeat", str(tmp_path / "none")])


def test_a_search_finds_nothing(tmp_path, capfd):
    pytest.importorskip("atheris")
    assert main(["npy", "--seconds", "2", "--keep", str(tmp_path)]) == 0
    assert "npy: 0 finds; stat::number_of_executed_units" in capfd.readouterr().out
