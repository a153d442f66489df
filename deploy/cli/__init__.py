"""The `speedtier` command.

Invariant: a part's package is imported only when its own subcommand is asked for, so that `speedtier
--help` answers at once and a decode node needs nothing of vLLM.
"""

from deploy.cli.app import build, main

__all__ = ["build", "main"]
