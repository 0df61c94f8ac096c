"""Ray: the engine as a value, and callables for datasets of Ray Data; docs/how-to/scale.md."""

from credibly.batch.ray_batches import JudgeBatches as JudgeBatches
from credibly.batch.ray_batches import ProfileBatches as ProfileBatches
from credibly.batch.ray_engine import Ray as Ray
