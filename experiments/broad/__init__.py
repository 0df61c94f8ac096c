"""Twenty networks, many scores: half of the networks choose, the other half confirm."""
