"""A scikit-learn estimator whose predictions come with credibility profiles."""
