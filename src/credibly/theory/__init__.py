"""What only a reader of the paper calls: the constrained problem, its inequalities, Bayes."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
