"""Trying profiles against others: attacks."""
