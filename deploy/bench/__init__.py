"""Benchmarks of the `speedtier bench` command. All speed claims are ratios taken in one run on one machine."""

from deploy.bench.config import DecodeBenchConfig
from deploy.bench.decode import decode

__all__ = ["DecodeBenchConfig", "decode"]
