"""Training and studies: each module is a command."""
