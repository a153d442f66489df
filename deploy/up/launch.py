"""`speedtier up`: the stack runs until it is told to end or a part of it dies.

Invariant: whatever ends it, nothing that it started is left.
"""

import shlex

import aiohttp
from rich.console import Console

from deploy.processes import Stack, run
from deploy.up.config import UpConfig
from deploy.up.deployment import deployment
from deploy.up.vllm import required_flags
from speedtier.errors import ConfigError

__all__ = ["served_by", "up"]


def up(config: UpConfig) -> None:
    """Start the stack and keep it running. Raises `ConfigError` or `PartFailed`."""
    run(_serve(config, Console(highlight=False, soft_wrap=True)))


async def _serve(config: UpConfig, console: Console) -> None:
    plan = deployment(config)
    console.print(f"logs: {plan.directory}")
    served = plan.served_name
    if config.vllm.url:
        served = await served_by(plan.vllm_url, config.served_name)
        flags = shlex.join(["--dtype", plan.dtype, *required_flags(plan.model)])
        console.print(f"using the vLLM at {plan.vllm_url}; it must run with\n  {flags}")
    async with Stack(plan.directory, console) as stack:
        await stack.start(plan.parts)
        console.print(_greeting(plan.router_url, served))
        console.print(f"check it: speedtier doctor --prefill {plan.vllm_url} --decode {plan.decode_url}")
        await stack.died()


async def served_by(url: str, wanted: str) -> str:
    """Name under which the vLLM at `url` serves. Raises `ConfigError` when it does not answer or has no such name."""
    try:
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{url}/v1/models") as reply:
            reply.raise_for_status()
            names = [str(one["id"]) for one in (await reply.json())["data"]]
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(f"vllm.url = {url!r}: no vLLM answers there ({error!r}); start it, or correct it") from error
    if wanted and wanted not in names:
        raise ConfigError(f"served_name = {wanted!r}: the vLLM at {url} serves {', '.join(names)}")
    return wanted or names[0]


def _greeting(url: str, served: str) -> str:
    body = f'{{"model":"{served}","messages":[{{"role":"user","content":"Hello"}}]}}'
    return (
        f"serving {served} at {url}/v1; end with Ctrl-C. Try\n"
        f"  curl {url}/v1/chat/completions -H 'content-type: application/json' "
        f"-H 'x-traffic-class: speed' -d '{body}'"
    )
