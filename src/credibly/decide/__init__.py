"""From what a model tells to decisions: the Judge, rules, and the watch over a stream."""
