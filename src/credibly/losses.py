"""Losses of one output with respect to every class; pass one as `Classifier(net, loss=...)`."""

from credibly.model.losses import CrossEntropy as CrossEntropy
from credibly.model.losses import CustomLoss as CustomLoss
from credibly.model.losses import Hinge as Hinge
from credibly.model.losses import Logistic as Logistic
from credibly.model.losses import Loss as Loss
from credibly.model.losses import OneVersusRestHinge as OneVersusRestHinge
