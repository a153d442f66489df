"""One vLLM server of the comparison."""

import json
import os
from pathlib import Path
from typing import Literal

import aiohttp
import msgspec

from deploy.bench.connector.idle import IDLE_TRANSFER
from deploy.bench.connector.shape import Shape
from deploy.bench.exposition import label
from deploy.processes import free_ports
from deploy.up import KV_TRANSFER, VllmConfig, vllm_part
from speedtier.errors import SpeedtierError

__all__ = ["Loaded", "Server"]


Loaded = Literal["ours", "idle", "none"]
_FLAG = "--kv-transfer-config"


class Server:
    """`part`: how to start it. The three differ in what is loaded and in nothing else."""

    def __init__(self, http: aiohttp.ClientSession, loaded: Loaded, shape: Shape) -> None:
        (self._port,) = free_ports(1)
        self._http, self._url, self._model = http, f"http://127.0.0.1:{self._port}", shape.name
        transfer = {"ours": KV_TRANSFER, "idle": IDLE_TRANSFER, "none": None}[loaded]
        config = VllmConfig(
            threads=1,
            arguments=(*shape.arguments, *(() if transfer is None else (_FLAG, json.dumps(transfer)))),
        )
        part = vllm_part(config, shape.directory, shape.name, shape.dtype, self._port, connector=False)
        self.part = msgspec.structs.replace(part, name=loaded)

    async def complete(self, prompt: list[int], tokens: int) -> None:
        """Exactly so many tokens. Raises SpeedtierError."""
        body = {"model": self._model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
        async with self._http.post(f"{self._url}/v1/completions", json=body) as reply:
            if reply.status != 200:
                raise SpeedtierError(f"{self._url} answered {reply.status}: {await reply.text()}")
            await reply.read()

    async def blocks(self) -> int:
        """Key-value cache blocks that it allotted."""
        async with self._http.get(f"{self._url}/metrics") as reply:
            return int(label(await reply.text(), "vllm:cache_config_info", "num_gpu_blocks"))

    def cpu_s(self) -> float:
        """Processor seconds of the server and all that it started, since their start."""
        ticks, parents = {}, {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                ours = f"--port\0{self._port}\0".encode() in (entry / "cmdline").read_bytes()
            except OSError:  # it ended just now
                continue
            ticks[int(entry.name)] = int(fields[11]) + int(fields[12])
            parents[int(entry.name)] = -1 if ours else int(fields[1])
        total = sum(used for process, used in ticks.items() if _below(process, parents))
        return total / os.sysconf("SC_CLK_TCK")


def _below(process: int, parents: dict[int, int]) -> bool:
    """Whether a process marked -1 is among its ancestors, or it itself."""
    while process in parents:
        process = parents[process]
        if process == -1:
            return True
    return False
