"""Ray: the engine as a value, and callables for datasets of Ray Data; docs/how-to/scale.md."""

from credibly.batch.ray_engine import Ray as Ray
