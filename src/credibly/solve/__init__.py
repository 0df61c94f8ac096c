"""Solvers as immutable values, and the one loop that runs them."""
