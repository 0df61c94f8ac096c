"""Attacks that know of the profile, the systems they attack, and tables of what they found."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
