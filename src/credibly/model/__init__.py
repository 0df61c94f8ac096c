"""A trained model seen as one callable, its losses and its derivatives."""
