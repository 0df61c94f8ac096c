"""Exact torch twins of fitted scikit-learn classifiers. Importing this loads no scikit-learn."""

from credibly.adapters.sklearn.twin import Twin, from_sklearn

__all__ = ["Twin", "from_sklearn"]
