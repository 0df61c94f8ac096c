"""How long batches take: learned while they are solved, to promise only what can be kept."""

from __future__ import annotations

NEW = 0.2
"""Weight of the newest batch in the mean."""


class Pace:
    """Seconds of a batch by its size, as a moving mean for each power of two.

    Example:
        >>> pace = Pace()
        >>> pace.note(1, 0.01); pace.note(8, 0.04)
        >>> pace.seconds(8), pace.ahead(20, 8)
        (0.04, 0.12)
    """

    def __init__(self) -> None:
        self._known: dict[int, float] = {}

    def note(self, rows: int, seconds: float) -> None:
        """Learn from a batch."""
        place = (rows - 1).bit_length()
        size = 1 << place
        # a batch between two sizes is taken as if it had the larger one
        scaled = seconds * (size / rows) if place in self._known else seconds
        before = self._known.get(place)
        self._known[place] = scaled if before is None else before + NEW * (scaled - before)

    def seconds(self, rows: int) -> float | None:
        """What so many rows will take, at most; None if nothing is known."""
        known = dict(self._known)  # another thread adds sizes
        if not known:
            return None
        if rows < 1:
            return 0.0
        place = (rows - 1).bit_length()
        nearest = max((k for k in known if k <= place), default=min(known))
        return known[nearest] * float(1 << max(0, place - nearest))

    def ahead(self, rows: int, most: int) -> float:
        """What rows will take in batches of at most `most`; 0 if nothing is known."""
        full, rest = divmod(rows, most)
        return full * (self.seconds(most) or 0.0) + (self.seconds(rest) or 0.0 if rest else 0.0)
