"""Readers of standard formats, and the sample that ships with the package."""
