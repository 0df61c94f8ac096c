"""Of the small model and the small run of these tests."""

ROWS = 23
CLASSES = ("red", "green", "blue")
SMALL = {"gamma": 2.0, "chunk_size": 4, "shard_size": 8}
