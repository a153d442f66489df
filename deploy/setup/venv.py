"""Creates the virtual environment or adopts the one that is there.

Invariant: an environment that works is kept, whoever made it; one that does not is made anew in the same
place.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from deploy.setup.errors import SetupError

__all__ = ["ready", "usable"]

_CHECK = "import sys, pip; sys.exit(sys.version_info < (3, 11))"


def usable(root: Path) -> bool:
    """Whether `root` is an environment with Python 3.11 or newer and pip."""
    try:
        command = [str(root / "bin" / "python"), "-c", _CHECK]
        return subprocess.run(command, capture_output=True, timeout=60).returncode == 0
    except OSError:
        return False


def ready(root: Path, say: Callable[[str], None]) -> None:
    """Make sure that a usable environment stands at `root`. Raises `SetupError`."""
    if usable(root):
        return
    again = ["--clear"] if root.exists() else []
    version = ".".join(map(str, sys.version_info[:3]))
    reason = " (the one that was there does not work)" if again else ""
    say(f"creating {root.name} with Python {version}{reason}")
    command = [sys.executable, "-m", "venv", *again, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0 or not usable(root):
        detail = (done.stderr or done.stdout).strip() or "pip is missing in it"
        raise SetupError(f"python -m venv {root} failed: {detail}; on Debian and Ubuntu install python3-venv")
