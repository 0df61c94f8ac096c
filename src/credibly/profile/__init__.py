"""Credibility profiles, their certificates and their files."""
