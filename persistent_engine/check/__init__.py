"""The checker: proves a plan file before it runs. Reads serialised bytes, never what a compiler holds in memory.

Invariant: `check` returns for any bytes, raises for none, and shares no code with the compiler.
"""

from persistent_engine.check.certificate import Certificate, certificate, load_certificate, verify
from persistent_engine.check.report import Finding, Item, Report
from persistent_engine.check.rules import RULES
from persistent_engine.check.run import check
from persistent_engine.check.view import DeviceLimits

__all__ = [
    "RULES",
    "Certificate",
    "DeviceLimits",
    "Finding",
    "Item",
    "Report",
    "certificate",
    "check",
    "load_certificate",
    "verify",
]
