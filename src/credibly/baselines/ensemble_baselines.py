"""Baselines that ask several times: other views of an input, or other networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from credibly._validation import require
from credibly.baselines.base import Baseline
from credibly.model.classifier import Classifier
from credibly.model.derivatives import FORWARD, logits_only
from credibly.model.logits import class_logits, mean_log_odds
from credibly.model.variable import Variable
from credibly.model.views import View, check_views, odds_over_views


@dataclass(frozen=True, kw_only=True)
class TestTimeAugmentation(Baseline):
    """The mean probability of the predicted class over views of the input, as log odds.

    Attributes:
        views: functions from inputs (n, ...) to other inputs of the same shape and class, such as
            flips and shifts of photographs. They must suit the data. The input itself counts, too.

    Example:
        >>> import torch, credibly as cr
        >>> flipped = cr.baselines.TestTimeAugmentation(views=(lambda x: x.flip(-1),))
        >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
        >>> flipped(cr.Classifier(net), torch.zeros(2, 1, 4, 4)).shape
        torch.Size([2])
    """

    __test__ = False  # the name begins as those that pytest collects

    views: tuple[View, ...]

    def __post_init__(self) -> None:
        known = check_views(self.views)
        require(len(known) > 0, "views", "at least one", "none", "The input itself counts, too.")

    def of_chunk(self, variable: Variable, x: Tensor) -> Tensor:
        logits = class_logits(variable.loss, logits_only(variable, x))
        return odds_over_views(variable.based_at(x), self.views, logits)

    def passes(self, classes: int) -> float:  # noqa: ARG002
        return FORWARD * (1 + len(self.views))


@dataclass(frozen=True, kw_only=True)
class Ensemble(Baseline):
    """The mean probability of the predicted class over several networks, as log odds.

    Lakshminarayanan et al. 2017; the class is that of the network that is asked about, which
    counts, too. It costs a training run per member: a ceiling more than a baseline.

    Attributes:
        members: other classifiers or modules of the same inputs and classes.

    Example:
        >>> import torch, credibly as cr
        >>> nets = [torch.nn.Linear(4, 3) for _ in range(3)]
        >>> cr.baselines.Ensemble(members=nets[1:])(cr.Classifier(nets[0]), torch.zeros(2, 4)).shape
        torch.Size([2])
    """

    members: Sequence[Classifier | torch.nn.Module]

    def __post_init__(self) -> None:
        several = isinstance(self.members, Sequence)
        got = "none" if several else f"a {type(self.members).__name__}"
        require(
            several and len(self.members) > 0,
            "members",
            "a list of other networks",
            got,
            "Four are usual.",
        )

    def of_chunk(self, variable: Variable, x: Tensor) -> Tensor:
        clfs = [m if isinstance(m, Classifier) else variable.clf.with_net(m) for m in self.members]
        asked = [variable, *(replace(variable, clf=clf) for clf in clfs)]
        logits = [class_logits(one.loss, logits_only(one, x)) for one in asked]
        shapes = {tuple(one.shape) for one in logits}
        remedy = "Train all members on the same classes."
        require(len(shapes) == 1, "members", "the same number of classes", f"{shapes}", remedy)
        return mean_log_odds(logits)

    def passes(self, classes: int) -> float:  # noqa: ARG002
        return FORWARD * (1 + len(self.members))
