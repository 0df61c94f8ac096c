"""Programs to read and to run: python -m examples.NAME."""

"""Scripts to run and to copy from; each makes its own data and trains its own small model."""
