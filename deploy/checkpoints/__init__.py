"""Small deterministic checkpoints in Hugging Face format, for the demo, the tests and the benchmarks.

Invariant: the same name and dtype give the same bytes on every machine; nothing is fetched.
"""

from deploy.checkpoints.build import DTYPES, NAMES, CheckpointError, build
from deploy.checkpoints.cache import ensure
from deploy.checkpoints.make import CheckpointConfig, make

__all__ = ["DTYPES", "NAMES", "CheckpointConfig", "CheckpointError", "build", "ensure", "make"]
