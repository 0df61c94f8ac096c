"""Notice an input that changes while it is read: its rows would not belong together."""

from __future__ import annotations

from credibly.errors import FileFormatError
from credibly.io.source import Source


class Watch:
    """The content of a source as it was at the start.

    Attributes:
        digest: its fingerprint.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stamp = source.stamp()  # before the digest: a change in between is then noticed
        if source.opened not in (None, self._stamp):
            raise FileFormatError(
                f"{source.path}: changed after it was opened. Open it again, once it is complete."
            )
        self.digest = source.fingerprint()

    def look(self) -> None:
        """Refuse another content if the size or the times of the file say that it may be one."""
        stamp = self._source.stamp()
        if stamp != self._stamp:
            self.compare()  # it may have been touched only
            self._stamp = stamp

    def compare(self) -> None:
        """Refuse another content; the whole file is read."""
        if self._source.fingerprint() != self.digest:
            raise FileFormatError(
                f"{self._source.path}: changed while it was read, so nothing was written. Wait "
                "until it is complete, or work on a copy, and run it again."
            )
