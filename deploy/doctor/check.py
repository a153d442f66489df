"""One thing that was looked at.

Invariant: a check that failed says what to do about it.
"""

from typing import Literal

import msgspec

__all__ = ["Check", "failed", "ok", "skipped"]


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """state: skipped when something else must be put right first, or traffic must not be disturbed."""

    name: str
    state: Literal["ok", "failed", "skipped"]
    found: str
    way_out: str = ""


def ok(name: str, found: str) -> Check:
    """It is as it should be."""
    return Check(name=name, state="ok", found=found)


def failed(name: str, found: str, way_out: str) -> Check:
    """It is not."""
    return Check(name=name, state="failed", found=found, way_out=way_out)


def skipped(name: str, found: str) -> Check:
    """Nothing was tried."""
    return Check(name=name, state="skipped", found=found)
