"""`speedtier up`: the stack runs until it is told to end or a part of it dies.

Invariant: whatever ends it, nothing that it started is left.
"""

import shlex

from rich.console import Console

from deploy.processes import Stack, run
from deploy.up.config import UpConfig
from deploy.up.deployment import Deployment, deployment
from deploy.up.vllm import required_flags

__all__ = ["up"]


def up(config: UpConfig) -> None:
    """Start the stack and keep it running. Raises `ConfigError` or `PartFailed`."""
    run(_serve(config, Console(highlight=False, soft_wrap=True)))


async def _serve(config: UpConfig, console: Console) -> None:
    plan = deployment(config)
    console.print(f"logs: {plan.directory}")
    if config.vllm.url:
        console.print(
            f"using the vLLM at {plan.vllm_url}; it must run with\n  {shlex.join(required_flags(plan.model))}"
        )
    async with Stack(plan.directory, console) as stack:
        await stack.start(plan.parts)
        console.print(_greeting(plan))
        await stack.died()


def _greeting(plan: Deployment) -> str:
    body = f'{{"model":"{plan.served_name}","messages":[{{"role":"user","content":"Hello"}}]}}'
    return (
        f"serving {plan.served_name} at {plan.router_url}/v1; end with Ctrl-C. Try\n"
        f"  curl {plan.router_url}/v1/chat/completions -H 'content-type: application/json' "
        f"-H 'x-traffic-class: speed' -d '{body}'"
    )
