"""Scores of trust, computed from a profile; docs/explanation/scores.md says how well each works."""

from credibly.decide.scores import SCORES as SCORES
from credibly.decide.scores import elasticity as elasticity
from credibly.decide.scores import gain as gain
from credibly.decide.scores import margin as margin
from credibly.decide.scores import max_softmax as max_softmax
from credibly.decide.scores import min_max as min_max
from credibly.decide.scores import negative_objective as negative_objective
from credibly.decide.scores import negative_risk as negative_risk
from credibly.decide.scores import p_norm as p_norm
from credibly.decide.scores import path_score as path_score
from credibly.decide.scores import predicted_ratio as predicted_ratio
from credibly.decide.scores import ratio as ratio
from credibly.decide.scores import shift as shift
from credibly.decide.scores import softmax_ratio as softmax_ratio
from credibly.decide.trust_scores import Balanced as Balanced
from credibly.decide.trust_scores import DistanceFromUsual as DistanceFromUsual
from credibly.decide.trust_scores import TrustScore as TrustScore
from credibly.decide.trust_scores import failure_score as failure_score
from credibly.decide.trust_scores import outlier_score as outlier_score
from credibly.decide.trust_scores import tamper_score as tamper_score
