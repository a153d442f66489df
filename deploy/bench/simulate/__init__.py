"""`speedtier bench simulate`: the simulator held against published figures."""

from deploy.bench.simulate.bench import simulate
from deploy.bench.simulate.config import SimulateBenchConfig

__all__ = ["SimulateBenchConfig", "simulate"]
