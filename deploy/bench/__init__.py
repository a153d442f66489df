"""Benchmarks of the `speedtier bench` command. All speed claims are ratios taken in one run on one machine."""

from deploy.bench.config import DecodeBenchConfig, FidelityBenchConfig
from deploy.bench.decode import decode
from deploy.bench.fidelity import fidelity, measure_fidelity

__all__ = ["DecodeBenchConfig", "FidelityBenchConfig", "decode", "fidelity", "measure_fidelity"]
