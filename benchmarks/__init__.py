"""Speed, measured: each module is a command that prints its table."""
