"""What can go wrong before the first package is there."""

from speedtier.errors import ConfigError

__all__ = ["SetupError"]


class SetupError(ConfigError):
    """The environment cannot be prepared; the message says what to install or set."""
