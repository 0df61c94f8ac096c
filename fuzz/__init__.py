"""A seeded search for what breaks the package; `python -m fuzz`, see docs/how-to/fuzzing.md."""
