"""Solvers, as values to pass as `solver=`; docs/explanation/solvers.md: which suits which model."""

from credibly.problem.fit_risk import FitRiskProblem as FitRiskProblem
from credibly.solve.arrow_hurwicz import ArrowHurwicz as ArrowHurwicz
from credibly.solve.base import Solver as Solver
from credibly.solve.fixed import FixedDescent as FixedDescent
from credibly.solve.gauss_newton import GaussNewton as GaussNewton
from credibly.solve.gradient_descent import GradientDescent as GradientDescent
from credibly.solve.gradient_descent import Hybrid as Hybrid
from credibly.solve.lbfgs import LBFGS as LBFGS
