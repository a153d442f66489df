"""How a vLLM server is started so that it can prefill for the latency tier.

Invariant: everything that an operator must add to a vLLM of their own is `required_flags`; the rest is only
what suits a small machine without a GPU.
"""

import json
import os
import sys
from pathlib import Path

from deploy.processes import Part
from deploy.up.config import VllmConfig

__all__ = ["KV_TRANSFER", "required_flags", "rotation_flags", "vllm_part"]

_MODULE = "tilert_connector.connector"
_CONNECTOR = {
    "kv_connector": "TileRTConnector",
    "kv_connector_module_path": _MODULE,
    "kv_role": "kv_producer",
    "kv_connector_extra_config": {},
}
# MultiConnector, so that a native connector can stand beside ours.
KV_TRANSFER = {
    "kv_connector": "MultiConnector",
    "kv_role": "kv_producer",
    "kv_connector_extra_config": {"connectors": [_CONNECTOR]},
}
_MANY = 8  # a small model gets slower, not faster, with more threads than this


def required_flags(model: Path) -> list[str]:
    """What a vLLM server for `model` needs to be the prefill node."""
    connector = ["--enable-scale-out", "--kv-transfer-config", json.dumps(KV_TRANSFER, separators=(",", ":"))]
    return [*connector, *rotation_flags(model)]


def rotation_flags(model: Path) -> list[str]:
    """For MLA models on the CPU: rotate in torch, since vLLM 0.32's kernel takes wrong positions for their
    keys (tilert_connector/layout/probe.py refuses to hand such states on).
    """
    try:
        latent = "kv_lora_rank" in json.loads((model / "config.json").read_text())
    except (OSError, ValueError):
        latent = False
    return ["--compilation-config", json.dumps({"custom_ops": ["all", "-rotary_embedding"]})] if latent else []


def _threads(asked: int) -> int:
    """One core is left for the scheduler, the router and the decode node where there is more than one."""
    return asked or max(1, min(len(os.sched_getaffinity(0)) - 1, _MANY))


def vllm_part(
    config: VllmConfig, model: Path, served_name: str, dtype: str, port: int, *, connector: bool = True
) -> Part:
    """A server for `model` on loopback `port`, with `required_flags` unless `connector` is False.

    Thread binding is off: vLLM's automatic binding sets two cores aside and finds none left on a small
    machine (`vllm/utils/ompmultiprocessing.py`).
    """
    command = (
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--served-model-name", served_name, "--dtype", dtype),
        *("--host", "127.0.0.1", "--port", str(port), "--enforce-eager"),
        *(required_flags(model) if connector else rotation_flags(model)),
        *config.arguments,
    )
    environment = {
        "VLLM_CPU_KVCACHE_SPACE": str(config.cache_gib),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(_threads(config.threads)),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    return Part(
        name="vllm",
        command=command,
        health=f"http://127.0.0.1:{port}/health",
        environment=environment,
        start_timeout_s=config.start_timeout_s,
    )
