"""Trying profiles against others: attacks, of those that know of the profile and others."""
