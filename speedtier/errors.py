"""The one error tree. Each package adds its own leaves below these and nothing beside them.

Invariant: a message names the field, the value that was given, and what to do about it.
"""

__all__ = ["ConfigError", "PlanError", "SpeedtierError", "TransferError", "UpstreamError"]


class SpeedtierError(Exception):
    """Root of every error that this distribution raises on purpose."""


class ConfigError(SpeedtierError):
    """A configuration or command line value cannot be used."""


class PlanError(SpeedtierError):
    """A decode plan, or a model it is to be compiled for, cannot be used."""


class TransferError(SpeedtierError):
    """A handoff of attention state failed."""


class UpstreamError(SpeedtierError):
    """A server that we depend on refused, failed or timed out."""
