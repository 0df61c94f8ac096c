"""From profiles to decisions: scores, and what they buy at a given coverage."""
