"""Many rows from disk to disk: in chunks, with shards that survive an interruption."""
