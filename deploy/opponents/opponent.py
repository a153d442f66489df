"""Another implementation in a process of its own, asked over a pipe for timed generations.

Its standard output and error go to a log, so that only answers come over the pipe. It ends when its pipe
closes.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from speedtier.errors import UpstreamError

__all__ = ["Answer", "Ask", "Opponent"]


class Ask(msgspec.Struct, frozen=True):
    """Generate `tokens` greedy tokens after `prompt`, end of sequence ignored. tops: tell the best of each place."""

    prompt: list[int]
    tokens: int
    tops: bool = False


class Answer(msgspec.Struct, frozen=True):
    """seconds: of the decode alone, from the first generated token to the last. tokens: all that were
    generated. tops: if asked for, (token, log-probability) of the
    best at each place, best first.
    """

    seconds: float
    tokens: list[int]
    tops: list[list[tuple[int, float]]] = []


class Opponent:
    """`python -m module model dtype` below, kept until the context ends."""

    def __init__(self, module: str, model: Path, dtype: str, threads: int) -> None:
        self._module = module
        down_read, down_write = os.pipe()
        up_read, up_write = os.pipe()
        self.log = Path(tempfile.mkstemp(prefix=f"{module.rpartition('.')[2]}-", suffix=".log")[1])
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(threads),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "SPEEDTIER_BENCH_PIPES": f"{down_read},{up_write}",
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(model), dtype],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=(down_read, up_write),
            )
        os.close(down_read)
        os.close(up_write)
        self._down = os.fdopen(down_write, "wb", buffering=0)
        self._up = os.fdopen(up_read, "rb")

    def __enter__(self) -> "Opponent":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._down.close()
        self._up.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def generate(self, prompt: Sequence[int], tokens: int, tops: bool = False) -> Answer:
        """One timed generation. Raises: UpstreamError when the process died."""
        self._down.write(msgspec.json.encode(Ask(list(prompt), tokens, tops)) + b"\n")
        line = self._up.readline()
        if not line:
            tail = self.log.read_text(errors="replace").strip().splitlines()[-3:]
            raise UpstreamError(f"{self._module} ended; its log is {self.log}: {' / '.join(tail)}")
        return msgspec.json.decode(line, type=Answer)
