"""The explorer: one page to look through verdicts, as a file or from a server on loopback."""
