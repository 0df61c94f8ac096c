"""The fit-risk problem and its weights."""
