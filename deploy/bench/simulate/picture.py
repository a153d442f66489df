"""The pictures of docs/simulation.md, drawn from simulated points: self-contained SVG, the same for the same points."""

from collections.abc import Mapping, Sequence
from html import escape

__all__ = ["bars", "curves"]

COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#b07aa1", "#76b7b2", "#edc948", "#9c755f", "#bab0ac")
STYLE = "text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}.grid{stroke:#ddd}"


def _round(largest: float) -> float:
    """A round number that is at least `largest`."""
    size = 1.0
    while size * 10 < largest:
        size *= 10
    return next(size * factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if size * factor >= largest)


def _frame(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text class="title" x="16" y="26">{escape(title)}</text>',
    ]
    return "\n".join([*head, *parts, "</svg>\n"])


def curves(title: str, x_name: str, y_name: str, lines: Mapping[str, Sequence[tuple[float, float, str]]]) -> str:
    """Lines of (x, y, mark beside the point)."""
    width, height, left, bottom, top, right = 860, 480, 80, 420, 50, 640
    most_x = _round(max(x for line in lines.values() for x, _, _ in line))
    most_y = _round(max(y for line in lines.values() for _, y, _ in line))

    def at(x: float, y: float) -> tuple[float, float]:
        return left + x / most_x * (right - left), bottom - y / most_y * (bottom - top)

    parts = []
    for tick in range(6):
        x, y = at(most_x * tick / 5, most_y * tick / 5)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom}"/>')
        parts.append(f'<line class="grid" x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{most_x * tick / 5:g}</text>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{most_y * tick / 5:g}</text>')
    parts.append(f'<text x="{(left + right) / 2}" y="{bottom + 42}" text-anchor="middle">{escape(x_name)}</text>')
    parts.append(
        f'<text x="20" y="{(top + bottom) / 2}" text-anchor="middle"'
        f' transform="rotate(-90 20 {(top + bottom) / 2})">{escape(y_name)}</text>'
    )
    for place, (name, line) in enumerate(lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        points = [at(x, y) for x, y, _ in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for (x, y), (one, other, mark) in zip(points, line, strict=True):
            says = escape(f"{name}, {mark}: {one:.0f} by {other:.0f}")
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"><title>{says}</title></circle>')
            parts.append(f'<text x="{x + 7:.1f}" y="{y - 6:.1f}" fill="{colour}">{escape(mark)}</text>')
        parts.append(f'<rect x="{right + 20}" y="{top + 22 * place}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{right + 38}" y="{top + 11 + 22 * place}">{escape(name)}</text>')
    return _frame(width, height, title, parts)


def bars(title: str, unit: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """A bar a row, made of parts that add up."""
    width, left, top, thick = 1000, 230, 56, 34
    most = _round(max(sum(parts.values()) for parts in rows.values()))
    names = list(dict.fromkeys(name for parts in rows.values() for name in parts))
    colour_of = {name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)}
    scale, drawn = (width - left - 110) / most, []
    for place, (row, parts) in enumerate(rows.items()):
        x, y = float(left), top + place * (thick + 12)
        drawn.append(f'<text x="16" y="{y + 21}">{escape(row)}</text>')
        for name in names:
            size = parts.get(name, 0.0)
            says = escape(f"{row}, {name}: {size:.0f} {unit}")
            drawn.append(
                f'<rect x="{x:.1f}" y="{y}" width="{size * scale:.1f}" height="{thick}" fill="{colour_of[name]}">'
                f"<title>{says}</title></rect>"
            )
            x += size * scale
        drawn.append(f'<text x="{x + 8:.1f}" y="{y + 21}">{sum(parts.values()):.0f} {unit}</text>')
    y = top + len(rows) * (thick + 12) + 10
    for place, name in enumerate(names):
        x, line = 16 + place % 4 * 240, y + place // 4 * 22
        drawn.append(f'<rect x="{x}" y="{line}" width="12" height="12" fill="{colour_of[name]}"/>')
        drawn.append(f'<text x="{x + 18}" y="{line + 11}">{escape(name)}</text>')
    return _frame(width, y + 22 * (-(-len(names) // 4)) + 16, title, drawn)
