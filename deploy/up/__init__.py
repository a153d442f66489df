"""The whole stack on one machine, from one configuration: vLLM, a decode node, a router.

Invariant: a configuration that is refused has started nothing.
"""

from deploy.up.config import UpConfig, VllmConfig
from deploy.up.deployment import Deployment, deployment
from deploy.up.launch import up
from deploy.up.vllm import KV_TRANSFER, required_flags, vllm_part

__all__ = [
    "KV_TRANSFER",
    "Deployment",
    "UpConfig",
    "VllmConfig",
    "deployment",
    "required_flags",
    "up",
    "vllm_part",
]
