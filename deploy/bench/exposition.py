"""Figures out of Prometheus text."""

__all__ = ["label", "metric"]


def metric(text: str, name: str) -> float:
    """Sum of a metric over its labels; 0 where there is none."""
    lines = (line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")))
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def label(text: str, name: str, key: str) -> str:
    """The value of label `key` of metric `name`; empty where there is none."""
    for line in text.splitlines():
        if line.startswith(f"{name}{{"):
            return line.partition(f'{key}="')[2].partition('"')[0]
    return ""
