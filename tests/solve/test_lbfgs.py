import torch
from hypothesis import given
from hypothesis import strategies as st

from credibly.solve.lbfgs import Memory


def dense_bfgs(pairs, scale, size):
    """The inverse Hessian by the textbook recursion."""
    h = scale * torch.eye(size, dtype=torch.float64)
    for s, y in pairs:
        rho = 1 / (s @ y)
        v = torch.eye(size, dtype=torch.float64) - rho * torch.outer(y, s)
        h = v.T @ h @ v + rho * torch.outer(s, s)
    return h


@given(stored=st.integers(0, 9), slots=st.integers(1, 5), seed=st.integers(0, 1000))
def test_the_compact_form_is_the_textbook_recursion(stored, slots, seed):
    g = torch.Generator().manual_seed(seed)
    size, count = 6, 3
    curvature = torch.randn(count, size, size, generator=g, dtype=torch.float64)
    curvature = curvature @ curvature.mT + torch.eye(size)
    memory = Memory.empty(torch.zeros(count, size, dtype=torch.float64), slots)
    history = [[] for _ in range(count)]
    for _ in range(stored):
        s = torch.randn(count, size, generator=g, dtype=torch.float64)
        y = (curvature @ s.unsqueeze(2)).squeeze(2)
        rows = torch.rand(count, generator=g) < 0.7  # not every sample accepts every step
        memory = memory.remember(s, y, rows)
        for n in range(count):
            if rows[n]:
                history[n].append((s[n], y[n]))
    gradient = torch.randn(count, size, generator=g, dtype=torch.float64)
    first = torch.rand(count, generator=g, dtype=torch.float64) + 0.1
    found = memory.apply(gradient, first)
    for n in range(count):
        kept = history[n][-slots:]
        scale = (kept[-1][0] @ kept[-1][1]) / (kept[-1][1] @ kept[-1][1]) if kept else first[n]
        expected = dense_bfgs(kept, scale, size) @ gradient[n]
        assert torch.allclose(found[n], expected, rtol=1e-7, atol=1e-9)
