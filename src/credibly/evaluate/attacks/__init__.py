"""Attacks that know of the profile, and the bookkeeping of who broke what."""
