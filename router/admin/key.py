"""The operator's key.

Invariant: it is compared as a digest and in constant time, and told nowhere.
"""

import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path

from router.keys import bearer
from speedtier.errors import ConfigError

__all__ = ["AdminKey"]

SHORTEST = 16


class AdminKey:
    """The key in a file, on one line; ``file`` empty: there is none.

    Raises:
        ConfigError: the file cannot be read, or its key could be guessed.
    """

    def __init__(self, file: str) -> None:
        self._digest: bytes | None = None
        if not file:
            return
        try:
            key = Path(file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"admin_key_file = {file!r} cannot be read: {error}; name a file with a key") from error
        if len(key) < SHORTEST or not key.isascii() or not key.isprintable():
            raise ConfigError(
                f"admin_key_file = {file!r} holds no key of {SHORTEST} or more characters on one line; make one with "
                "`speedtier keys --admin`"
            )
        self._digest = hashlib.sha256(key.encode()).digest()

    def __bool__(self) -> bool:
        return self._digest is not None

    def opens(self, headers: Mapping[str, str]) -> bool:
        """Whether a request carries it as ``Authorization: Bearer``."""
        digest = hashlib.sha256(bearer(headers)).digest()
        return self._digest is not None and hmac.compare_digest(self._digest, digest)
