"""Makes API keys for clients of the router.

Invariant: a key is shown once and written nowhere; what the router's configuration holds is its digest.
"""

import hashlib
import secrets
from collections.abc import Sequence

from rich.console import Console

from speedtier.errors import ConfigError

__all__ = ["api_keys"]

BYTES = 32


def api_keys(names: Sequence[str], console: Console) -> None:
    """Show a new key for each name, and what to add to the router's configuration. Raises ConfigError for a name that
    is there twice.
    """
    if len(set(names)) < len(names):
        raise ConfigError(f"api = {list(names)}: give each key its own name")
    made = {name: f"sk-{secrets.token_urlsafe(BYTES)}" for name in names}
    console.print("Give each client its key; it is not shown again:")
    for name, key in made.items():
        console.print(f"  {name}  {key}")
    console.print("\nAdd to the router's configuration (traffic_class and tenant as you like):")
    for name, key in made.items():
        digest = hashlib.sha256(key.encode()).hexdigest()
        console.print(f'\n[[api_keys]]\nname = "{name}"\nsha256 = "{digest}"', markup=False)
