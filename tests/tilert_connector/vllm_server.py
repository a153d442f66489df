"""A stock vLLM server with the connector loaded, for the tests that are marked `vllm`."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_S = 180.0
CONNECTORS = {
    "kv_connector": "MultiConnector",
    "kv_role": "kv_producer",
    "kv_connector_extra_config": {
        "connectors": [
            {
                "kv_connector": "TileRTConnector",
                "kv_connector_module_path": "tilert_connector.connector",
                "kv_role": "kv_producer",
                "kv_connector_extra_config": {"frame_bytes": 65536, "hold_s": 90.0, "offer_s": 120.0},
            }
        ]
    },
}


class VllmServer:
    """Speaks to one server on loopback."""

    def __init__(self, url: str, log: Path, process: subprocess.Popen[bytes]) -> None:
        self.url, self.log, self.process = url, log, process

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Raises AssertionError with the server's words unless it answers 200."""
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=150) as reply:
                answer: dict[str, Any] = json.load(reply)
                return answer
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path}: {error.code} {error.read().decode()}") from error

    def complete(self, prompt: list[int], params: dict[str, Any] | None, max_tokens: int = 1) -> list[int]:
        """Greedy token ids."""
        body: dict[str, Any] = {"model": "m", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        body |= {"return_token_ids": True, "ignore_eos": True}
        if params is not None:
            body["kv_transfer_params"] = params
        choice = self.post("/v1/completions", body)["choices"][0]
        ids: list[int] = choice["token_ids"]
        return ids

    def metric(self, name: str) -> float:
        """Sum of a Prometheus metric over its labels."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=30) as reply:
            lines = reply.read().decode().splitlines()
        found = [line for line in lines if line.startswith((name + "{", name + " "))]
        return sum(float(line.rpartition(" ")[2]) for line in found)


@contextmanager
def vllm_server(
    model: Path,
    log: Path,
    *flags: str,
    connectors: dict[str, Any] | None = None,
    environment: dict[str, str] | None = None,
) -> Iterator[VllmServer]:
    """Start, wait until it is ready, and end it with everything that it started."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "m", "--host", "127.0.0.1", "--port", str(port), "--enforce-eager"]
    command += ["--dtype", "float32", "--max-num-seqs", "8", "--kv-transfer-config"]
    command += [json.dumps(connectors or CONNECTORS), *flags]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "2"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            env={**os.environ, **settings, **(environment or {})},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        server = VllmServer(f"http://127.0.0.1:{port}", log, process)
        try:
            _wait(server)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait(10)


def _wait(server: VllmServer) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            with urllib.request.urlopen(server.url + "/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            dead = server.process.poll() is not None
            if dead or time.monotonic() > deadline:
                tail = server.log.read_text(errors="replace")[-4000:]
                raise AssertionError(f"vLLM did not start (exit {server.process.poll()}):\n{tail}") from None
            time.sleep(0.3)
