"""The paper's experiments, figure by figure: `python -m experiments.paper`.

Each figure has a TOML file in `figures/`. Its stages (choose, attack, solve, measure) are cached by
the SHA-256 of everything they depend on. Its numbers go into one JSON file, and the pictures are
drawn from that file alone.
"""
