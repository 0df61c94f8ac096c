"""Files that are written can be read by whom the umask says."""

import os
import stat
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import credibly as cr
from credibly.io.tensor_files import save_tensors
from credibly.study.rows import Rows, write_rows

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")


@pytest.fixture(params=[0o022, 0o027, 0o077])
def mask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


def test_profiles_and_parts_of_studies_follow_the_umask(tmp_path, mask):
    clf = cr.Classifier(torch.nn.Linear(2, 2).double().eval())
    cr.credibility(clf, np.eye(2), gamma=1.0).save(tmp_path / "p.safetensors")
    none = torch.zeros(2, dtype=torch.int64)
    rows = Rows("ordinary", none, none, none, {}, {})
    write_rows(tmp_path / "ordinary.safetensors", rows, {"kind": "ordinary"})
    for path in tmp_path.iterdir():
        assert mode(path) == 0o666 & ~mask, path.name
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    path = tmp_path / "a.safetensors"
    path.touch()
    path.chmod(0o640)
    save_tensors({"a": torch.ones(2)}, path, metadata={})
    assert mode(path) == 0o640
    assert load_file(path)["a"].tolist() == [1.0, 1.0]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path):
    both = torch.ones(4)
    with pytest.raises(RuntimeError, match="share memory"):
        save_tensors({"a": both, "b": both}, tmp_path / "a.safetensors", metadata={})
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_plain_file_is_never_replaced_by_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(cr.errors.InvalidArgumentError, match="no plain file"):
        save_tensors({"a": torch.ones(2)}, pipe, metadata={})
    assert pipe.is_fifo()
