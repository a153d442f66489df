"""`speedtier bench handoff`: how fast attention state moves, as ratios to what the machine can do at all.

One file for each measurement; a report is put together from what `MEASUREMENTS` return.
"""

from deploy.bench.handoff.config import HandoffBenchConfig
from deploy.bench.handoff.report import Measurement, Part, handoff

__all__ = ["HandoffBenchConfig", "Measurement", "Part", "handoff"]
