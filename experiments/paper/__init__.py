"""The paper's experiments, figure by figure: `python -m experiments.paper`.

Each figure has a small TOML file in `figures/`. Its stages (choose, attack, solve, measure) are
cached by the SHA-256 of what they depend on; its numbers go into one JSON file, and the pictures
are drawn from that file alone.
"""
