"""Programs to run and to copy from; each makes its own data and model: python -m examples.NAME."""
