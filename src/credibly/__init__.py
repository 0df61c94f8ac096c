"""How much should you trust this prediction?

`credibly` takes a classifier that is already trained and gives every prediction a credibility
profile, with no labels, no training data and no perturbation budget.

The public names stand in `__init__.pyi` and are loaded on first use, so that importing the package
stays light.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
