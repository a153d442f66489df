"""Runs one command and ends everything it started, even when whoever asked for it was killed.

Used as a script, standard library only: `python -I guard.py GRACE_S COMMAND...`. Standard input is the
lifeline: its end means that the launcher is gone. The guard is the reaper of all orphans below it
(PR_SET_CHILD_SUBREAPER), so a grandchild in a session of its own, such as vLLM's engine process, is found
and ended too.

Invariant: when the guard has ended, nothing that the command started is left. Its exit status is the
command's, or 128 plus the signal.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["descendants", "main"]

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>
_KILL_S = 5.0


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _die_with_guard() -> None:
    """For the one case that the guard can not handle: that it is killed itself."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def descendants(root: int) -> list[int]:
    """All processes below `root`, from /proc, dead ones that wait for their parent included."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _reap() -> bool:
    """Collect what has ended; True while a child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _kill_rest() -> None:
    deadline = time.monotonic() + _KILL_S
    while _reap() and time.monotonic() < deadline:
        for process in descendants(os.getpid()):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


def _status(code: int) -> int:
    return code if code >= 0 else 128 - code


def main(arguments: list[str]) -> int:
    """Run `arguments[1:]`; it gets `arguments[0]` seconds between SIGTERM and SIGKILL."""
    grace_s, command = float(arguments[0]), arguments[1:]
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake, wake_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_end)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0, preexec_fn=_die_with_guard)
    except OSError as error:
        print(f"guard: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    child = os.pidfd_open(process.pid)
    ready, _, _ = select.select([child, wake, sys.stdin.fileno()], [], [])
    if child not in ready:
        os.killpg(process.pid, signal.SIGTERM)
        select.select([child], [], [], grace_s)
    ended = process.poll()
    _kill_rest()
    return _status(ended if ended is not None else -signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
