"""What every package of the distribution shares: the error tree and strict configuration."""

from speedtier.errors import SpeedtierError

__all__ = ["SpeedtierError", "__version__"]

__version__ = "0.1.0"
