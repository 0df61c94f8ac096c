"""The embedded network and images."""
