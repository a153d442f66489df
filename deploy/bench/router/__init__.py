"""`speedtier bench router`: what the router costs, between stub servers that cost next to nothing."""

from deploy.bench.router.config import RouterBenchConfig
from deploy.bench.router.report import router

__all__ = ["RouterBenchConfig", "router"]
