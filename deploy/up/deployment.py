"""From one `UpConfig` to the parts of a stack and the addresses that clients use.

Invariant: working this out starts nothing and opens nothing; a mistake in the configuration shows here.
"""

import json
import os
import shutil
import time
from pathlib import Path

import msgspec

from deploy.checkpoints import NAMES, ensure
from deploy.checkpoints.place import cache_root
from deploy.processes import Part, free_ports
from deploy.up.config import UpConfig
from deploy.up.nodes import decode_part, router_part
from deploy.up.vllm import vllm_part
from speedtier.errors import ConfigError

__all__ = ["Deployment", "deployment"]

_RUNS_KEPT = 20


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """All parts that are to be started, and where the finished stack answers."""

    parts: tuple[Part, ...]
    directory: Path
    model: Path
    dtype: str
    served_name: str
    vllm_url: str
    decode_url: str
    router_url: str


def deployment(config: UpConfig) -> Deployment:
    """Work out the stack for `config`. Raises `ConfigError`."""
    model, dtype = _model(config.model, config.dtype)
    served_name = config.served_name or model.name
    directory = Path(config.directory) if config.directory else _run_directory()
    vllm_port, decode_port, router_port = free_ports(3)
    router_port = config.port or router_port
    vllm_url = config.vllm.url.rstrip("/") or f"http://127.0.0.1:{vllm_port}"
    decode_url = f"http://127.0.0.1:{decode_port}"
    parts = [
        decode_part(
            directory,
            {"model": str(model), "dtype": dtype, "host": "127.0.0.1", "port": decode_port},
            config.decode,
        ),
        router_part(
            directory,
            {
                "host": config.host,
                "port": router_port,
                "prefill": [vllm_url],
                "decode": [{"url": decode_url}],
                "native": [vllm_url],
                "tokenizer": str(model),
            },
            config.router,
        ),
    ]
    if not config.vllm.url:
        parts.insert(0, vllm_part(config.vllm, model, served_name, dtype, vllm_port))
    return Deployment(
        parts=tuple(parts),
        directory=directory,
        model=model,
        dtype=dtype,
        served_name=served_name,
        vllm_url=vllm_url,
        decode_url=decode_url,
        router_url=f"http://{config.host}:{router_port}",
    )


def _model(name: str, dtype: str) -> tuple[Path, str]:
    """Directory and dtype. vLLM's own "auto" turns float32 into bfloat16, so both ends are always told."""
    if name in NAMES:
        dtype = "float32" if dtype == "auto" else dtype
        return ensure(name, dtype), dtype
    directory = Path(name).expanduser().resolve()
    try:
        settings = json.loads((directory / "config.json").read_text())
    except (OSError, ValueError) as error:
        ways = f"name a checkpoint directory or {' or '.join(NAMES)}"
        raise ConfigError(f"model = {name!r}: no config.json there that can be read ({error}); {ways}") from error
    stored = settings.get("dtype") or settings.get("torch_dtype") or "bfloat16"
    return directory, stored if dtype == "auto" else dtype


def _run_directory() -> Path:
    """A new directory for logs; of the older ones the last few are kept."""
    runs = cache_root() / "runs"
    kept = sorted(runs.glob("*-*-*"))[-_RUNS_KEPT:] if runs.is_dir() else []
    for old in set(runs.glob("*-*-*")) - set(kept):
        shutil.rmtree(old, ignore_errors=True)
    return runs / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
