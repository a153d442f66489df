"""`speedtier bench fidelity`: how often the engine would have chosen vLLM's token, and how close it was where not."""

import random
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from deploy.bench.config import FidelityBenchConfig
from deploy.bench.contender import Contender
from deploy.bench.machine import machine
from deploy.checkpoints import NAMES, ensure
from deploy.opponents import Opponent
from deploy.opponents.answer import Tops
from persistent_engine.models import read_facts

__all__ = ["Disagreement", "fidelity", "measure_fidelity"]

Cause = Literal["logits", "experts", "carried", "unexplained"]
TIE_LOGITS = 0.75
"""bfloat16 keeps 8 bits: logits from 16 to 32 are 0.125 apart, and vLLM rounds after every operator."""
TIE_EXPERTS = 0.04
"""Scores are sigmoids of logits that bfloat16 rounds to steps of up to 0.03."""


class Disagreement(msgspec.Struct, frozen=True):
    """A place where the two differ.

    vllm_gap: in vLLM, the logit of its choice less that of the engine's (or of its 20th best).
    engine_gap: in the engine, the logit of its choice less that of vLLM's. routing_margin: see
    `Contender.routing_margin`. cause: `logits` if both gaps are within TIE_LOGITS,
    `experts` if the margin is within TIE_EXPERTS, `carried` if experts were a near-tie at an earlier place that
    differed (the state of its token differs since), else `unexplained`.
    """

    prompt: int
    place: int
    vllm_token: int
    engine_token: int
    vllm_gap: float
    engine_gap: float
    routing_margin: float
    cause: Cause


def _force(engine: Contender, prompt: list[int], answer: list[int], tops: Tops, index: int) -> list[Disagreement]:
    """Compare the engine's choice at each place of `answer`."""
    found: list[Disagreement] = []
    for position, token in enumerate([*prompt, *answer[:-1]]):
        ((choice,), _) = engine.run(position, token, 1)
        place = position - len(prompt) + 1
        if place >= 0 and choice != answer[place]:
            logits = engine.logits()
            gap = float(logits[choice] - logits[answer[place]])
            margin = engine.routing_margin()
            cause: Cause = "unexplained"
            told = dict(tops[place])
            other = told[answer[place]] - told.get(choice, min(told.values()))
            if max(gap, other) <= TIE_LOGITS:
                cause = "logits"
            elif margin <= TIE_EXPERTS:
                cause = "experts"
            elif any(one.routing_margin <= TIE_EXPERTS for one in found):
                cause = "carried"
            found.append(Disagreement(index, place, answer[place], choice, other, gap, margin, cause))
    return found


def measure_fidelity(config: FidelityBenchConfig, console: Console) -> dict[str, Any]:
    """The report. Raises: SpeedtierError."""
    model = ensure(config.model) if config.model in NAMES else Path(config.model)
    vocabulary, source = read_facts(model).vocabulary, random.Random(0)
    lengths = [1 + index * (config.longest - 1) // max(1, config.prompts - 1) for index in range(config.prompts)]
    found: list[Disagreement] = []
    gaps: list[float] = []
    with (
        Opponent("deploy.opponents.vllm", model, config.dtype, 2) as vllm,
        Progress(console=console, transient=True, disable=not console.is_terminal) as bar,
    ):
        engine = Contender(model, config.dtype, 0, config.longest + config.tokens + 8, lambda done, total: None)
        try:
            for index, length in bar.track(list(enumerate(lengths)), description="comparing"):
                prompt = [source.randrange(10, vocabulary) for _ in range(length)]
                answer = vllm.generate(prompt, config.tokens, tops=True)
                gaps += [step[0][1] - step[1][1] for step in answer.tops]
                found += _force(engine, prompt, answer.tokens, answer.tops, index)
        finally:
            engine.close()
    return {
        "name": "fidelity",
        "machine": machine(),
        "figures": {
            "model": config.model,
            "dtype": config.dtype,
            "places": len(gaps),
            "agreement": 1 - len(found) / len(gaps),
            "median_gap": float(np.median(gaps)),
            "largest_gap_of_a_disagreement": max((one.vllm_gap for one in found), default=0.0),
            "causes": dict(Counter(one.cause for one in found)),
            "disagreements": msgspec.to_builtins(found),
        },
        "against": {"vllm": {}},
        "ratio": {},
    }


def fidelity(config: FidelityBenchConfig) -> None:
    """Measure, print a table, write JSON. Raises: SpeedtierError."""
    console = Console()
    report = measure_fidelity(config, console)
    figures = report["figures"]
    table = Table(title=f"{figures['model']}, {figures['dtype']}: where the engine would not have chosen vLLM's token")
    names = (
        "prompt",
        "place",
        "vLLM's",
        "engine's",
        "gap in vLLM",
        "gap in the engine",
        "routing margin",
        "near-tie of",
    )
    for column in names:
        table.add_column(column, justify="right")
    for one in figures["disagreements"]:
        table.add_row(*(f"{value:.4f}" if isinstance(value, float) else str(value) for value in one.values()))
    console.print(table)
    console.print(
        f"agreement {figures['agreement']:.3%} of {figures['places']} places; gaps are logits, the median over all"
        f" places is {figures['median_gap']:.3f}, the largest of a disagreement"
        f" {figures['largest_gap_of_a_disagreement']:.4f}; near-ties of {figures['causes']}"
    )
    if config.json:
        Path(config.json).write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
