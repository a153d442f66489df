"""One layer of a trace as an SVG that any browser shows: a row for each worker, a bar for each task, time to the right.

Invariant: every span of the layer is one bar (class `task`), with its name, times and what it began after as a tooltip;
the file is self-contained: no script, no font, nothing that is fetched.
"""

import math
from collections.abc import Iterator
from html import escape

from persistent_engine.trace.record import Span, Trace
from speedtier.errors import PlanError

__all__ = ["layer_svg"]

WIDTH, LEFT, ROW, TOP = 1400, 190, 26, 64
COLOURS = (
    "#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#ff9da7", "#1f6f50",
    "#d37295", "#a0cbe8", "#8cd17d", "#b6992d", "#499894", "#d4a6c8", "#79706e", "#fabfd2", "#f1ce63", "#ffbe7d",
)  # fmt: skip
STYLE = (
    "text{font:12px sans-serif;fill:#222}.title{font-size:16px;font-weight:bold}.dim{fill:#666}"
    ".wait{fill:#d8d8d8}.task{stroke:#fff;stroke-width:.5}.grid{stroke:#e4e4e4}.on{fill:#fff;font-size:10px}"
)


def _step(length: float) -> float:
    """A round distance between marks: about ten of them in `length`."""
    size = 10.0 ** math.floor(math.log10(length / 10))
    return next(size * factor for factor in (1, 2, 5, 10) if size * factor * 10 >= length * 0.999)


def _bars(span: Span, y: float, colour: str, start: float, scale: float) -> Iterator[str]:
    def x(seconds: float) -> float:
        return LEFT + (seconds - start) * scale

    if span.began_s > span.reached_s:
        left = max(LEFT, x(span.reached_s))
        wide = max(0.0, x(span.began_s) - left)
        yield f'<rect class="wait" x="{left:.2f}" y="{y + 8}" width="{wide:.2f}" height="6"/>'
    width = max(0.6, (span.ended_s - span.began_s) * scale)
    took, waited = (span.ended_s - span.began_s) * 1e6, (span.began_s - span.reached_s) * 1e6
    after = f", after task {span.after}" if span.after >= 0 else ""
    says = f"{span.label} ({span.operator}), task {span.task}: {took:.2f} µs, waited {waited:.2f} µs{after}"
    yield (
        f'<rect class="task" data-task="{span.task}" x="{x(span.began_s):.2f}" y="{y + 2}" width="{width:.2f}"'
        f' height="{ROW - 8}" fill="{colour}"><title>{escape(says)}</title></rect>'
    )
    if width > 7 * len(span.operator):
        at = x(span.began_s) + 3
        yield f'<text class="on" x="{at:.1f}" y="{y + 15}" pointer-events="none">{escape(span.operator)}</text>'


def layer_svg(trace: Trace, layer: int) -> str:
    """The layer's tasks in the trace's last epoch. Raises: PlanError when the trace has none of that layer."""
    last = max((span.epoch for span in trace.spans), default=0)
    spans = [span for span in trace.spans if span.layer == layer and span.epoch == last]
    if not spans:
        layers = sorted({span.layer for span in trace.spans})
        known = f"{layers[0]} to {layers[-1]}" if layers else "none"
        raise PlanError(f"layer is {layer}; the trace has {known} (-1: before the first layer)")
    start = min(span.began_s for span in spans)
    length = max(max(span.ended_s for span in spans) - start, 1e-9)
    scale = (WIDTH - LEFT - 20) / length
    workers = sorted({span.worker for span in spans})
    seen = dict.fromkeys(span.operator for span in sorted(spans, key=lambda one: one.began_s))
    colours = {operator: COLOURS[place % len(COLOURS)] for place, operator in enumerate(seen)}
    bottom = TOP + ROW * len(workers)
    legend_rows = -(-len(colours) // 7)
    height = bottom + 40 + 20 * legend_rows
    what = f"{trace.model} on {trace.device}, layer {layer}: {length * 1e6:.1f} µs, {len(spans)} tasks ({trace.source})"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text class="title" x="12" y="24">{escape(what)}</text>',
        '<text class="dim" x="12" y="42">A bar is a task, the thin grey one before it its wait. Point at a bar.</text>',
    ]
    mark = _step(length)
    for tick in range(int(length / mark) + 1):
        x = LEFT + tick * mark * scale
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(
            f'<text class="dim" x="{x:.1f}" y="{TOP - 8}" text-anchor="middle">{tick * mark * 1e6:g} µs</text>'
        )
    for place, worker in enumerate(workers):
        y, track = TOP + ROW * place, trace.tracks[worker]
        says = f"{worker}: {track.device_name} {track.role} x{track.lanes}"
        parts.append(f'<text x="12" y="{y + 15}">{escape(says)}</text>')
        for span in spans:
            if span.worker == worker:
                parts += _bars(span, y, colours[span.operator], start, scale)
    for place, (operator, colour) in enumerate(colours.items()):
        x, y = 12 + place % 7 * 196, bottom + 22 + place // 7 * 20
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 17}" y="{y + 11}">{escape(operator)}</text>')
    return "\n".join([*parts, "</svg>\n"])
