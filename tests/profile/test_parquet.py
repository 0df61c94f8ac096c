"""Tables of profiles, read again: the same decisions, and plain words for what is not there."""

import copy
import errno
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import credibly as cr
from credibly.batch import report
from credibly.batch.report import FAILED, OUTSIDE
from credibly.decide.scores import SCORES
from credibly.profile import parquet
from tests.reference import models

NAMES = ("ant", "bee", "cat.dog", "dog", "elk")
CLF = cr.Classifier(models.relu_network().float(), classes=NAMES)
X = models.inputs(60).float()
X[4, 2] = math.nan
SOLVER = cr.solvers.LBFGS(steps=6)
LABELS = CLF.logits(X.nan_to_num(0.0)).argmax(1)
LABELS[::9] = (LABELS[::9] + 1) % 5


@pytest.fixture(scope="module")
def profile():
    return cr.credibility(CLF, X, gamma=30.0, solver=SOLVER, bounds=(-5, 5))


@pytest.fixture(scope="module")
def written(profile, tmp_path_factory):
    path = tmp_path_factory.mktemp("tables") / "kind=a.parquet"  # no meaning is read into names
    profile.to_parquet(path)
    return path


@pytest.fixture(scope="module")
def scored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scored")
    np.save(folder / "x.npy", X.numpy())
    cr.score(
        CLF, folder / "x.npy", folder / "profiles.parquet", gamma=30.0, solver=SOLVER,
        bounds=(-5, 5), shard_size=16, chunk_size=8,
    )  # fmt: skip
    return folder / "profiles.parquet"


@pytest.fixture(params=["written", "scored"])
def again(request):
    return cr.Profile.from_parquet(request.getfixturevalue(request.param))


def same(left, right):
    return left.dtype == right.dtype and torch.equal(left.nan_to_num(7.0), right.nan_to_num(7.0))


def decisions(profile):
    """What every rule, made from the first half, says about the second."""
    known, new, labels = profile[:30], profile[30:], LABELS[:30]
    rules = [
        cr.SelectiveClassifier.for_coverage(CLF, known, 0.7),
        cr.SelectiveClassifier.for_coverage(CLF, known, 0.7, score="margin", answer="credible"),
        cr.SelectiveClassifier.for_error_rate(CLF, known, labels, 0.5),
        cr.SelectiveClassifier.for_alpha(CLF, known, 0.3),
    ]
    flag = cr.OutlierFlag.fit(CLF, known, false_alarms=0.1)
    sets = cr.ConformalSets.fit(CLF, known, labels, confidence=0.8, probabilities="profile")
    return (
        [rule.decide(new).named() for rule in rules],
        flag.flag(new).tolist(),
        sets.sets(new).tolist(),
        rules,
        flag,
    )


def test_a_profile_and_its_table_decide_alike(profile, written):
    again = cr.Profile.from_parquet(written)
    for name in ("credibility", "credence", "risk", "multipliers", "passes", "codes"):
        assert same(getattr(again, name), getattr(profile, name)), name
    assert again.settings == profile.settings
    assert again.status == profile.status
    for name, score in SCORES.items():
        assert same(score(again), score(profile)), name
    assert decisions(again) == decisions(profile)
    assert repr(again) == repr(profile)
    assert again.summary() == profile.summary()
    assert torch.equal(again.ranking(), profile.ranking())


def test_what_the_command_scored_decides_as_the_one_call(profile, scored):
    """Chunks of other sizes round otherwise, so the profile is solved in the same ones."""
    direct = cr.credibility(CLF, X, gamma=30.0, solver=SOLVER, bounds=(-5, 5), chunk_size=8)
    again = cr.Profile.from_parquet(scored)
    assert again.settings == profile.settings
    assert again.status == direct.status
    assert torch.allclose(again.credibility, direct.credibility, atol=1e-4, equal_nan=True)
    rule = cr.SelectiveClassifier.for_coverage(CLF, profile, 0.7)
    assert rule.decide(again).named() == rule.decide(direct).named()
    flag = cr.OutlierFlag.fit(CLF, again, false_alarms=0.1)
    assert flag.flag(direct).tolist() == flag.flag(again).tolist()


def test_other_settings_are_refused_as_of_any_profile(again):
    other = cr.credibility(CLF, X[:20], gamma=31.0, solver=SOLVER, bounds=(-5, 5))
    rule = cr.SelectiveClassifier.for_coverage(CLF, other, 0.7)
    with pytest.raises(cr.errors.InvalidArgumentError, match="gamma=31"):
        rule.decide(again)
    foreign = cr.Classifier(models.relu_network(seed=3).float(), classes=NAMES)
    with pytest.raises(cr.errors.InvalidArgumentError, match="this very classifier"):
        cr.OutlierFlag.fit(foreign, again)


def test_what_a_table_has_not_is_said_in_words(again, tmp_path):
    for ask in (
        lambda: again.x0,
        lambda: again.perturbed,
        lambda: again.steps,
        lambda: again.certificate.stationarity,
        again.certificate.holds,
        lambda: again.save(tmp_path / "new.safetensors"),
        lambda: cr.attached_credibility(CLF, again[again.usable]),
        lambda: cr.token_movement(again),
    ):
        with pytest.raises(
            cr.errors.NotStoredError, match=r"read from a Parquet table.*Profile\.save"
        ):
            ask()
    assert not hasattr(again, "x0")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = again.nonsense
    assert "objective" in repr(again.certificate)
    assert "stationarity" not in repr(again.certificate).replace("relative_stationarity", "")


def test_rows_copies_and_joins_of_a_table_are_tables(again, profile, tmp_path):
    joined = cr.Profile.concatenate([again[:10], profile[10:20], again[20:]])
    assert len(joined) == 60
    assert not hasattr(joined, "x0")
    assert same(joined[[4]].risk, again[4].risk)
    assert same(copy.deepcopy(again).risk, again.risk)
    joined.to_parquet(tmp_path / "again.parquet")
    assert same(cr.Profile.from_parquet(tmp_path / "again.parquet").credence, joined.credence)


def test_whole_profiles_stay_whole(profile):
    parts = vars(profile[:3])
    assert [name for name, value in parts.items() if value is None] == ["kept"]  # for `top` only
    assert same(cr.Profile.concatenate([profile[:2], profile[2:]]).x0, profile.x0)


def test_rows_that_the_command_could_not_score_are_never_answered(tmp_path):
    def failing(x):
        if bool((x[:, 0] > 50).any()):
            message = "too large"
            raise RuntimeError(message)
        return x @ torch.eye(3, dtype=x.dtype)

    x = np.random.default_rng(0).normal(size=(9, 3))
    x[3], x[5] = 60, 200
    np.save(tmp_path / "x.npy", x)
    clf = cr.Classifier(failing, dtype=torch.float64)
    cr.score(clf, tmp_path / "x.npy", tmp_path / "p.parquet", gamma=1.0, bounds=(-9, 99))
    assert {OUTSIDE, FAILED} <= set(pd.read_parquet(tmp_path / "p.parquet")["status"])
    profile = cr.Profile.from_parquet(tmp_path / "p.parquet")
    assert profile.status[3] is cr.Status.NON_FINITE_MODEL
    assert profile.status[5] is cr.Status.NON_FINITE_INPUT
    rule = cr.SelectiveClassifier.for_coverage(clf, profile, 1.0)
    assert (~rule.decide(profile).accepted).nonzero().flatten().tolist() == [3, 5]


def test_every_status_of_the_command_is_known():
    assert set(parquet._STATUS) == set(report._ADVICE)
    assert not any(parquet._STATUS[word].usable for word in (OUTSIDE, FAILED, report.UNREADABLE))


def rewritten(source, path, *, drop=None, column=None, metadata=None):
    table = pq.ParquetFile(source).read()
    kept = dict(table.schema.metadata) | (metadata or {})
    kept = {key: value for key, value in kept.items() if value is not None}
    if drop:
        table = table.drop_columns([drop])
    if column:
        table = table.set_column(table.column_names.index(column[0]), column[0], column[1])
    pq.write_table(table.replace_schema_metadata(kept), path)
    return path


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"drop": "credence.cat.dog"}, "'credence.cat.dog' is missing"),
        ({"drop": "status"}, "'status' is missing"),
        ({"column": ("risk", pa.array(["x"] * 60))}, "'risk' holds string"),
        ({"column": ("status", pa.array(["well"] * 60))}, "unknown status"),
        ({"column": ("status", pa.array([None] * 60, pa.string()))}, "unknown status"),
        ({"metadata": {b"format": None}}, "without the settings"),
        ({"metadata": {b"format": b"other"}}, "not a 'credibly.profile' file"),
        ({"metadata": {b"format": b"\xff"}}, "metadata cannot be read"),
        ({"metadata": {b"format_version": b"9"}}, "newer"),
        ({"metadata": {b"settings": b"{}"}}, "settings cannot be read"),
        ({"metadata": {b"format": b"credibly.score"}}, "settings cannot be read"),
    ],
)
def test_damaged_tables_are_refused_with_their_name(written, tmp_path, damage, message):
    path = rewritten(written, tmp_path / "damaged.parquet", **damage)
    with pytest.raises(cr.errors.FileFormatError, match=message) as caught:
        cr.Profile.from_parquet(path)
    assert str(path) in str(caught.value)


def test_classes_that_do_not_go_with_the_weights_are_refused(profile, written, tmp_path):
    settings = json.loads(pq.read_schema(written).metadata[b"settings"]) | {"classes": ["ant"]}
    changed = {b"settings": json.dumps(settings).encode()}
    path = rewritten(written, tmp_path / "few.parquet", metadata=changed)
    with pytest.raises(cr.errors.FileFormatError, match="1 names of classes for 5 weights"):
        cr.Profile.from_parquet(path)
    assert len(profile) == 60


def test_files_that_are_no_tables_are_refused(profile, tmp_path):
    profile.save(tmp_path / "new.safetensors")
    with pytest.raises(cr.errors.FileFormatError, match=r"Profile\.load"):
        cr.Profile.from_parquet(tmp_path / "new.safetensors")
    with pytest.raises(cr.errors.FileFormatError, match="a folder"):
        cr.Profile.from_parquet(tmp_path)
    with pytest.raises(
        cr.errors.FileFormatError, match=r"missing\.\w+: cannot be read \(No such file"
    ):
        cr.Profile.from_parquet(tmp_path / "missing.parquet")


def test_an_old_table_outlives_a_disk_that_is_full(tmp_path, profile, monkeypatch):
    path = tmp_path / "profile.parquet"
    profile.to_parquet(path)
    before = path.read_bytes()

    def half(_table, place):
        place.write_bytes(before[: len(before) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq, "write_table", half)
    with pytest.raises(cr.errors.OutputError, match="the disk is full"):
        profile.to_parquet(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("cut", [3, 30, 300])
def test_a_damaged_footer_is_a_damaged_file(written, tmp_path, cut):
    content = bytearray(written.read_bytes())
    content[-cut - 8 : -8] = b"\xff" * cut
    path = tmp_path / "damaged.parquet"
    path.write_bytes(content)
    with pytest.raises(cr.errors.FileFormatError, match=r"damaged\.parquet"):
        cr.Profile.from_parquet(path)


def test_words_in_another_encoding_are_a_damaged_file(written, tmp_path):
    ends = np.arange(61, dtype=np.int32)
    words = pa.Array.from_buffers(
        pa.string(), 60, [None, pa.py_buffer(ends), pa.py_buffer(b"\xff" * 60)]
    )
    path = rewritten(written, tmp_path / "words.parquet", column=("status", words))
    with pytest.raises(cr.errors.FileFormatError, match=r"words\.parquet: not a readable"):
        cr.Profile.from_parquet(path)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [10**400] * 5}, {"weights": []}, {"weights": 3}, {"bounds": [1]},
        {"bounds": "ab"}, {"solver": None}, {"classes": [1, 2, 3, 4, 5]}, {"moves": []},
    ],
)  # fmt: skip
def test_settings_that_are_none_are_a_damaged_file(written, tmp_path, change):
    settings = json.loads(pq.read_schema(written).metadata[b"settings"]) | change
    changed = {b"settings": json.dumps(settings).encode()}
    path = rewritten(written, tmp_path / "few.parquet", metadata=changed)
    with pytest.raises(cr.errors.FileFormatError, match=r"few\.parquet"):
        cr.Profile.from_parquet(path)
