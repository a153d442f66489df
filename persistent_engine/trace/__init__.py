"""What ran when: one record schema for simulated and real runs, Perfetto's JSON, a picture of one layer."""

from persistent_engine.trace.drawing import layer_svg
from persistent_engine.trace.perfetto import perfetto
from persistent_engine.trace.record import WHOLE_STEP, Span, Trace, Track
from persistent_engine.trace.sources import measured, simulated

__all__ = ["WHOLE_STEP", "Span", "Trace", "Track", "layer_svg", "measured", "perfetto", "simulated"]
