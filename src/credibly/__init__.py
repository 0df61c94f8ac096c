"""How much should you trust this prediction?

`credibly` takes a classifier that is already trained and gives every prediction a credibility
profile, with no labels, no training data and no perturbation budget.

Names are loaded when they are first used, so that importing the package stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from credibly.version import __version__

if TYPE_CHECKING:
    from credibly.batch.report import ScoreReport
    from credibly.batch.score import score
    from credibly.data.sources import Source, open_source
    from credibly.decide.bootstrap import Interval, bootstrap, paired_difference
    from credibly.decide.compare import Comparison, compare
    from credibly.decide.conformal import ConformalSets
    from credibly.decide.flag import OutlierFlag
    from credibly.decide.learned import (
        Balanced,
        TrustScore,
        failure_score,
        outlier_score,
        tamper_score,
    )
    from credibly.decide.metrics import augrc, aurc, auroc, e_aurc, fpr_at_tpr, risk_coverage
    from credibly.decide.scores import path_score
    from credibly.decide.selective import ABSTAINED, Abstention, Decision, SelectiveClassifier
    from credibly.decide.verdict import Judge, Verdict
    from credibly.errors import (
        CrediblyError,
        CrediblyWarning,
        FileFormatError,
        InvalidArgumentError,
        MissingExtraError,
        ModelError,
        NotStoredError,
        OutputError,
    )
    from credibly.estimator.credibility_classifier import CredibilityClassifier
    from credibly.evaluate.attacks.adaptive import BPDA, ImplicitGradient, Surrogate, Unrolled
    from credibly.evaluate.attacks.base import Attack
    from credibly.evaluate.attacks.inverse import InverseMap
    from credibly.evaluate.attacks.pgd import PGD
    from credibly.evaluate.attacks.rejection import RejectionAware
    from credibly.evaluate.attacks.square import Square
    from credibly.evaluate.attacks.system import Outcome, System
    from credibly.evaluate.attacks.table import (
        AttackTable,
        Finding,
        WorstCase,
        accuracy_falls_with_eps,
        large_eps_breaks_everything,
        more_steps_do_not_help,
        sanity_list,
        try_attacks,
        white_box_beats_black_box,
        worst_case,
    )
    from credibly.evaluate.attacks.transfer import TransferAPGD
    from credibly.evaluate.corruptions import Corruption
    from credibly.evaluate.minimum_norm import minimum_norm_attacks
    from credibly.evaluate.study import InputSet, Rows, Study, read_study
    from credibly.evaluate.study_result import StudyResult
    from credibly.evaluate.summary import summarise
    from credibly.model.bound import Bound, bind
    from credibly.model.classifier import Classifier
    from credibly.model.files import LoadedClassifier, load_classifier
    from credibly.model.graph import graph_nodes, graph_samples
    from credibly.model.jax import from_jax
    from credibly.model.losses import (
        CrossEntropy,
        CustomLoss,
        Hinge,
        Logistic,
        Loss,
        OneVersusRestHinge,
    )
    from credibly.model.parameters import vary_parameters
    from credibly.model.sklearn.twin import from_sklearn
    from credibly.model.skorch import from_skorch
    from credibly.model.space import Space
    from credibly.model.transformers import from_transformers
    from credibly.problem.bayes import log_joint
    from credibly.problem.fit_risk import FitRiskProblem
    from credibly.problem.weights import auto_gamma, prior_weights
    from credibly.profile.certificate import Certificate, certify
    from credibly.profile.constrained import ConstrainedSolution, Feasibility, solve_constrained
    from credibly.profile.credibility import credibility
    from credibly.profile.implicit import attached_credibility
    from credibly.profile.path import CredibilityPath, credibility_path
    from credibly.profile.profile import Profile
    from credibly.profile.tokens import token_movement
    from credibly.profile.tradeoff import Assumption2, TradeOff, try_assumption_2, try_tradeoff
    from credibly.report.plot import plot_profile
    from credibly.solve.arrow_hurwicz import ArrowHurwicz
    from credibly.solve.base import Solver
    from credibly.solve.constrained import (
        AugmentedLagrangian,
        ClassicalArrowHurwicz,
        ConstrainedMethod,
    )
    from credibly.solve.gauss_newton import GaussNewton
    from credibly.solve.gradient_descent import GradientDescent
    from credibly.solve.hybrid import Hybrid
    from credibly.solve.lbfgs import LBFGS
    from credibly.solve.status import Status

_HOME = {
    "ABSTAINED": "decide.selective",
    "Abstention": "decide.selective",
    "ArrowHurwicz": "solve.arrow_hurwicz",
    "Assumption2": "profile.tradeoff",
    "Attack": "evaluate.attacks.base",
    "AttackTable": "evaluate.attacks.table",
    "AugmentedLagrangian": "solve.constrained",
    "BPDA": "evaluate.attacks.adaptive",
    "Balanced": "decide.learned",
    "Bound": "model.bound",
    "Certificate": "profile.certificate",
    "ClassicalArrowHurwicz": "solve.constrained",
    "Classifier": "model.classifier",
    "Comparison": "decide.compare",
    "ConformalSets": "decide.conformal",
    "ConstrainedMethod": "solve.constrained",
    "ConstrainedSolution": "profile.constrained",
    "Corruption": "evaluate.corruptions",
    "CredibilityClassifier": "estimator.credibility_classifier",
    "CredibilityPath": "profile.path",
    "CrediblyError": "errors",
    "CrediblyWarning": "errors",
    "CrossEntropy": "model.losses",
    "CustomLoss": "model.losses",
    "Decision": "decide.selective",
    "Feasibility": "profile.constrained",
    "FileFormatError": "errors",
    "Finding": "evaluate.attacks.table",
    "FitRiskProblem": "problem.fit_risk",
    "GaussNewton": "solve.gauss_newton",
    "GradientDescent": "solve.gradient_descent",
    "Hinge": "model.losses",
    "Hybrid": "solve.hybrid",
    "ImplicitGradient": "evaluate.attacks.adaptive",
    "InputSet": "evaluate.study",
    "Interval": "decide.bootstrap",
    "InvalidArgumentError": "errors",
    "InverseMap": "evaluate.attacks.inverse",
    "Judge": "decide.verdict",
    "LBFGS": "solve.lbfgs",
    "LoadedClassifier": "model.files",
    "Logistic": "model.losses",
    "Loss": "model.losses",
    "MissingExtraError": "errors",
    "ModelError": "errors",
    "OneVersusRestHinge": "model.losses",
    "Outcome": "evaluate.attacks.system",
    "OutlierFlag": "decide.flag",
    "NotStoredError": "errors",
    "OutputError": "errors",
    "PGD": "evaluate.attacks.pgd",
    "Profile": "profile.profile",
    "RejectionAware": "evaluate.attacks.rejection",
    "Rows": "evaluate.study",
    "ScoreReport": "batch.report",
    "SelectiveClassifier": "decide.selective",
    "Solver": "solve.base",
    "Source": "data.sources",
    "Space": "model.space",
    "Square": "evaluate.attacks.square",
    "Status": "solve.status",
    "Study": "evaluate.study",
    "StudyResult": "evaluate.study_result",
    "Surrogate": "evaluate.attacks.adaptive",
    "System": "evaluate.attacks.system",
    "TradeOff": "profile.tradeoff",
    "TransferAPGD": "evaluate.attacks.transfer",
    "TrustScore": "decide.learned",
    "Unrolled": "evaluate.attacks.adaptive",
    "Verdict": "decide.verdict",
    "WorstCase": "evaluate.attacks.table",
    "accuracy_falls_with_eps": "evaluate.attacks.table",
    "attached_credibility": "profile.implicit",
    "augrc": "decide.metrics",
    "aurc": "decide.metrics",
    "auroc": "decide.metrics",
    "auto_gamma": "problem.weights",
    "bind": "model.bound",
    "bootstrap": "decide.bootstrap",
    "certify": "profile.certificate",
    "compare": "decide.compare",
    "credibility": "profile.credibility",
    "credibility_path": "profile.path",
    "e_aurc": "decide.metrics",
    "failure_score": "decide.learned",
    "fpr_at_tpr": "decide.metrics",
    "from_jax": "model.jax",
    "from_sklearn": "model.sklearn.twin",
    "from_skorch": "model.skorch",
    "from_transformers": "model.transformers",
    "graph_nodes": "model.graph",
    "graph_samples": "model.graph",
    "large_eps_breaks_everything": "evaluate.attacks.table",
    "load_classifier": "model.files",
    "log_joint": "problem.bayes",
    "minimum_norm_attacks": "evaluate.minimum_norm",
    "more_steps_do_not_help": "evaluate.attacks.table",
    "open_source": "data.sources",
    "outlier_score": "decide.learned",
    "paired_difference": "decide.bootstrap",
    "plot_profile": "report.plot",
    "path_score": "decide.scores",
    "prior_weights": "problem.weights",
    "read_study": "evaluate.study",
    "risk_coverage": "decide.metrics",
    "sanity_list": "evaluate.attacks.table",
    "score": "batch.score",
    "solve_constrained": "profile.constrained",
    "summarise": "evaluate.summary",
    "tamper_score": "decide.learned",
    "token_movement": "profile.tokens",
    "try_assumption_2": "profile.tradeoff",
    "try_attacks": "evaluate.attacks.table",
    "try_tradeoff": "profile.tradeoff",
    "vary_parameters": "model.parameters",
    "white_box_beats_black_box": "evaluate.attacks.table",
    "worst_case": "evaluate.attacks.table",
}

__all__ = [
    "ABSTAINED",
    "BPDA",
    "LBFGS",
    "PGD",
    "Abstention",
    "ArrowHurwicz",
    "Assumption2",
    "Attack",
    "AttackTable",
    "AugmentedLagrangian",
    "Balanced",
    "Bound",
    "Certificate",
    "ClassicalArrowHurwicz",
    "Classifier",
    "Comparison",
    "ConformalSets",
    "ConstrainedMethod",
    "ConstrainedSolution",
    "Corruption",
    "CredibilityClassifier",
    "CredibilityPath",
    "CrediblyError",
    "CrediblyWarning",
    "CrossEntropy",
    "CustomLoss",
    "Decision",
    "Feasibility",
    "FileFormatError",
    "Finding",
    "FitRiskProblem",
    "GaussNewton",
    "GradientDescent",
    "Hinge",
    "Hybrid",
    "ImplicitGradient",
    "InputSet",
    "Interval",
    "InvalidArgumentError",
    "InverseMap",
    "Judge",
    "LoadedClassifier",
    "Logistic",
    "Loss",
    "MissingExtraError",
    "ModelError",
    "NotStoredError",
    "OneVersusRestHinge",
    "Outcome",
    "OutlierFlag",
    "OutputError",
    "Profile",
    "RejectionAware",
    "Rows",
    "ScoreReport",
    "SelectiveClassifier",
    "Solver",
    "Source",
    "Space",
    "Square",
    "Status",
    "Study",
    "StudyResult",
    "Surrogate",
    "System",
    "TradeOff",
    "TransferAPGD",
    "TrustScore",
    "Unrolled",
    "Verdict",
    "WorstCase",
    "__version__",
    "accuracy_falls_with_eps",
    "attached_credibility",
    "augrc",
    "aurc",
    "auroc",
    "auto_gamma",
    "bind",
    "bootstrap",
    "certify",
    "compare",
    "credibility",
    "credibility_path",
    "e_aurc",
    "failure_score",
    "fpr_at_tpr",
    "from_jax",
    "from_sklearn",
    "from_skorch",
    "from_transformers",
    "graph_nodes",
    "graph_samples",
    "large_eps_breaks_everything",
    "load_classifier",
    "log_joint",
    "minimum_norm_attacks",
    "more_steps_do_not_help",
    "open_source",
    "outlier_score",
    "paired_difference",
    "path_score",
    "plot_profile",
    "prior_weights",
    "read_study",
    "risk_coverage",
    "sanity_list",
    "score",
    "solve_constrained",
    "summarise",
    "tamper_score",
    "token_movement",
    "try_assumption_2",
    "try_attacks",
    "try_tradeoff",
    "vary_parameters",
    "white_box_beats_black_box",
    "worst_case",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        message = f"module 'credibly' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(f"credibly.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
