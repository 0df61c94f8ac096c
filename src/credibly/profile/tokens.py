"""Which words a profile moved: a counterfactual to look at in text."""

from __future__ import annotations

from torch import Tensor

from credibly.errors import InvalidArgumentError
from credibly.profile.given import check_profile
from credibly.profile.profile import Profile


def token_movement(profile: Profile) -> Tensor:
    """How far each position of a sequence moved (n, T): the length of x+ - x0 there.

    For profiles of embedded words, or of any sequence (n, T, D). The word that moves most is the
    one whose change brings all classes closest to each other at the least cost; it is a direction
    of the model's, not a synonym: x+ is in general the embedding of no word.
    """
    check_profile(profile)
    if profile.x0.dim() != 3:
        raise InvalidArgumentError(
            "profile",
            expected="a profile of sequences, whose inputs are (n, T, D)",
            got=f"inputs of shape {tuple(profile.x0.shape)}",
            remedy="Move the embedding of the words: Classifier(net, module='embedding') or "
            "from_transformers(model).",
        )
    moved: Tensor = (profile.perturbed - profile.x0).norm(dim=2)
    return moved
