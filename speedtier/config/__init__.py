"""Strict configuration: frozen msgspec structs, TOML files, and command line options made from the same
structs.

Invariant: one class per part says every field's type, bounds, default and description; nothing repeats
them, and nothing that it does not name is accepted.
"""

from speedtier.config.convert import from_mapping, read
from speedtier.config.options import command

__all__ = ["command", "from_mapping", "read"]
