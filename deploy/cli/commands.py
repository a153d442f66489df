"""Which subcommands there are and where each one lives.

Invariant: naming a command here costs no import of what it runs.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import msgspec

from speedtier.config import command
from speedtier.errors import ConfigError

__all__ = ["COMMANDS", "GROUPS", "Command"]

GROUPS = {
    "bench": "Measure.",
    "nodes": "See and steer the servers behind a running router.",
    "plan": "Compile, check, draw and simulate decode plans.",
}
"""What the commands of two words share."""


class Command(msgspec.Struct, frozen=True):
    """`path` is what one types; `run` takes one `config` of `module`."""

    path: tuple[str, ...]
    help: str
    module: str
    config: str
    run: str

    def load(self) -> Callable[..., None]:
        """The function with its options. Raises `ConfigError` when a package that it needs is not
        installed.
        """
        try:
            module = import_module(self.module)
        except ModuleNotFoundError as error:
            name = " ".join(self.path)
            raise ConfigError(f"speedtier {name} needs the package {error.name!r}; run `make setup`") from error
        run: Callable[[Any], None] = getattr(module, self.run)
        return command(getattr(module, self.config), run, help_=self.help)


COMMANDS = (
    Command(
        ("checkpoint",),
        "Build a small checkpoint in Hugging Face format.",
        "deploy.checkpoints",
        "CheckpointConfig",
        "make",
    ),
    Command(
        ("decode",),
        "Run a decode node: receiver, persistent engine, HTTP.",
        "persistent_engine.server",
        "DecodeConfig",
        "serve",
    ),
    Command(
        ("router",),
        "Run the OpenAI-compatible front over both tiers.",
        "router",
        "RouterConfig",
        "serve",
    ),
    Command(
        ("up",),
        "Keep the whole stack running from one file, over your own vLLM or one it starts.",
        "deploy.up",
        "UpConfig",
        "up",
    ),
    Command(
        ("demo",),
        "Ask both tiers the same questions, side by side, and compare the tokens.",
        "deploy.demo",
        "DemoConfig",
        "demo",
    ),
    Command(
        ("doctor",),
        "Check a running pair of prefill server and decode node, up to one real handoff.",
        "deploy.doctor",
        "DoctorConfig",
        "doctor",
    ),
    Command(
        ("keys",),
        "Make ticket, admin and API keys and CURVE certificates, and say which goes where.",
        "deploy.keys",
        "KeysConfig",
        "keys",
    ),
    Command(
        ("nodes", "list"),
        "Show the servers behind a router and how they are.",
        "deploy.nodes",
        "NodesConfig",
        "show",
    ),
    Command(
        ("nodes", "add"),
        "Take a server into service.",
        "deploy.nodes",
        "AddConfig",
        "add",
    ),
    Command(
        ("nodes", "drain"),
        "Give a server no new requests; those that it has go on.",
        "deploy.nodes",
        "NamedConfig",
        "drain",
    ),
    Command(
        ("nodes", "resume"),
        "Give a drained server requests again.",
        "deploy.nodes",
        "NamedConfig",
        "resume",
    ),
    Command(
        ("nodes", "remove"),
        "Drain a server, wait for its requests, and forget it.",
        "deploy.nodes",
        "RemoveConfig",
        "remove",
    ),
    Command(
        ("plan", "compile"),
        "Compile a model for a machine into a plan file.",
        "deploy.plan.compile",
        "CompileConfig",
        "compile_to_file",
    ),
    Command(
        ("plan", "show"),
        "Show a plan's queues, and a layer's tasks, as tables.",
        "deploy.plan.show",
        "ShowConfig",
        "show",
    ),
    Command(
        ("plan", "check"),
        "Check a plan against all rules, and write its certificate when it keeps them.",
        "deploy.plan.check",
        "CheckConfig",
        "check_plan",
    ),
    Command(
        ("plan", "diff"),
        "Show what differs between two plans.",
        "deploy.plan.diff",
        "DiffConfig",
        "diff",
    ),
    Command(
        ("plan", "simulate"),
        "Say how long a step takes on a machine, and what it is spent on.",
        "deploy.plan.simulate",
        "SimulateConfig",
        "simulate",
    ),
    Command(
        ("plan", "trace"),
        "Write a simulated step as Perfetto JSON.",
        "deploy.plan.trace",
        "TraceConfig",
        "trace",
    ),
    Command(
        ("plan", "roofline"),
        "Count what a step must read and compute, and say the limit that a machine's rates set.",
        "deploy.plan.roofline",
        "RooflineConfig",
        "roofline",
    ),
    Command(
        ("plan", "timeline"),
        "Draw one layer of a simulated step as an SVG.",
        "deploy.plan.trace",
        "TimelineConfig",
        "timeline",
    ),
    Command(
        ("bench", "decode"),
        "Measure decode speed against vLLM on the same weights.",
        "deploy.bench",
        "DecodeBenchConfig",
        "decode",
    ),
    Command(
        ("bench", "fidelity"),
        "Count the places where the engine would have chosen another token than vLLM, and how close they were.",
        "deploy.bench",
        "FidelityBenchConfig",
        "fidelity",
    ),
    Command(
        ("bench", "handoff"),
        "Measure how fast attention state moves between two processes, against memcpy and plain sockets.",
        "deploy.bench.handoff",
        "HandoffBenchConfig",
        "handoff",
    ),
    Command(
        ("bench", "connector"),
        "Measure what general traffic pays for the connector's being loaded into vLLM.",
        "deploy.bench.connector",
        "ConnectorBenchConfig",
        "connector",
    ),
    Command(
        ("bench", "router"),
        "Measure what the router adds to a token and to the first one, between stub servers.",
        "deploy.bench.router",
        "RouterBenchConfig",
        "router",
    ),
    Command(
        ("bench", "simulate"),
        "Simulate decode speed on a machine that is not here, next to published figures.",
        "deploy.bench.simulate",
        "SimulateBenchConfig",
        "simulate",
    ),
)
