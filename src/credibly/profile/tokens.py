"""Which words of a text a profile moved."""

from __future__ import annotations

from torch import Tensor

from credibly._validation import require
from credibly.profile.given import check_profile
from credibly.profile.profile import Profile


def token_movement(profile: Profile) -> Tensor:
    """How far each position of a sequence moved (n, T): the length of x+ - x0 there.

    For profiles of embedded words, or of any sequence (n, T, D). The word that moves most is the
    one whose change brings all classes closest together at the least cost. It is a direction of the
    model, not a synonym: in general x+ is not the embedding of any word.

    Example: see examples/text_transformer.py.
    """
    check_profile(profile)
    require(
        profile.x0.dim() == 3,
        "profile",
        "a profile of sequences, whose inputs are (n, T, D)",
        f"inputs of shape {tuple(profile.x0.shape)}",
        "Move the embedding of the words: Classifier(net, module='embedding') or "
        "from_transformers(model).",
    )
    moved: Tensor = (profile.perturbed - profile.x0).norm(dim=2)
    return moved
