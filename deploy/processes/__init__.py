"""Child processes: start them, wait until they serve, and leave none behind.

Invariant: no way for the launcher to end, SIGKILL included, leaves a process.
"""

from deploy.processes.part import Part, PartFailed
from deploy.processes.ports import free_ports
from deploy.processes.run import run
from deploy.processes.stack import Stack

__all__ = ["Part", "PartFailed", "Stack", "free_ports", "run"]
