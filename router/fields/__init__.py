"""Which request fields the speed tier executes.

Invariant (R1): a field is executed because the rules say where, is neutral because its value is or is null, and
otherwise sends its request to the native pool; no name is ever skipped over.
"""

from router.fields.checks import unable, unable_resolved
from router.fields.rules import DECODED, EXECUTED, LOCAL, NEUTRAL

__all__ = ["DECODED", "EXECUTED", "LOCAL", "NEUTRAL", "unable", "unable_resolved"]
