"""Knows whether the environment is what the checkout asks for.

Invariant: the stamp is written last, so an environment that has it was finished for exactly these inputs.
"""

import hashlib
from pathlib import Path

__all__ = ["Stamp"]


class Stamp:
    """Digest of everything that set-up depends on, kept inside the environment."""

    def __init__(self, checkout: Path, venv: Path, *facts: str) -> None:
        digest = hashlib.sha256("\0".join((str(venv), *facts)).encode())
        for source in (checkout / "pyproject.toml", *sorted(Path(__file__).parent.glob("*.*"))):
            digest.update(source.name.encode() + b"\0" + source.read_bytes())
        self._file = venv / ".speedtier-setup"
        self._text = digest.hexdigest() + "\n"

    def fresh(self) -> bool:
        return self._file.is_file() and self._file.read_text() == self._text

    def clear(self) -> None:
        self._file.unlink(missing_ok=True)

    def write(self) -> None:
        self._file.write_text(self._text)
