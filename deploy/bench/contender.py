"""The persistent engine as `bench decode` drives it: resident workers, no HTTP, times taken inside the
loop.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from persistent_engine.plan import BufferKind, BufferRow, Dtype
from persistent_engine.runtime import Job
from persistent_engine.runtime.cpu import Resident
from persistent_engine.server import DecodeConfig
from persistent_engine.server.node import bind_model

__all__ = ["Contender"]


class Contender:
    """Greedy decode of one model; `close` at the end."""

    def __init__(self, model: Path, dtype: str, workers: int, room: int, progress: Callable[[int, int], None]) -> None:
        config = DecodeConfig(model=str(model), dtype=dtype, workers=workers, max_tokens=room)  # type: ignore[arg-type]
        bound = bind_model(config, progress)
        self.plan, self.facts = bound.binding.plan, bound.facts
        self._binding = bound.binding
        self._resident = Resident(bound.binding, bound.slots)
        self._resident.start()

    @property
    def workers(self) -> int:
        """Resident workers."""
        return len(self.plan.workers)

    def bytes_per_token(self, context: int) -> int:
        """Bytes of weights that a step reads (chosen experts only) and of state at `context` tokens."""
        total, experts = 0, self.facts.experts
        for row in self.plan.buffers.astype(np.int64):
            item = Dtype(int(row[BufferRow.DTYPE])).item
            name = self.plan.manifest.names[row[BufferRow.NAME]]
            if row[BufferRow.KIND] == BufferKind.STATE:
                total += context * row[BufferRow.COLS] * item
            elif row[BufferRow.KIND] == BufferKind.WEIGHT and name not in ("rope", "model.embed_tokens.weight"):
                share = experts.active / experts.count if experts and ".mlp.experts." in name else 1
                total += row[BufferRow.ROWS] * row[BufferRow.COLS] * item * share
        return int(total)

    def run(self, position: int, token: int, most: int) -> tuple[list[int], float]:
        """Decode `most` tokens after `position` tokens of state; gives them, and the seconds from the first
        to the last.
        """
        resident = self._resident
        sequence = resident.submit(Job(slot=0, position=position, token=token, most=most))
        while resident.finished(sequence) is None:
            time.sleep(0.0005)
        tokens = resident.ring[:most].tolist()
        return tokens, float(resident.times[most - 1] - resident.times[0]) / 1e9

    def fill(self, prompt: list[int]) -> int:
        """State of `prompt`, one token a step; gives the token after it."""
        after = -1
        for position, token in enumerate(prompt):
            ((after,), _) = self.run(position, token, 1)
        return after

    def logits(self) -> np.ndarray:
        """Logits [vocabulary] of the last step, float32; a view."""
        names = self.plan.manifest.names
        number = next(n for n, row in enumerate(self.plan.buffers) if names[row[BufferRow.NAME]] == "logits")
        logits: np.ndarray = self._binding.arrays[number][0]
        return logits

    def routing_margin(self) -> float:
        """How near the last step came to choosing other experts: the smallest difference, over layers, between the last
        biased score taken and the first one left, of experts and of groups. Infinite without experts.
        """
        facts, names, margin = self.facts.experts, self.plan.manifest.names, float("inf")
        buffers = {names[row[BufferRow.NAME]]: number for number, row in enumerate(self.plan.buffers)}
        if facts is None:
            return margin
        for layer in range(facts.dense_layers, self.facts.layers):
            logits = self._binding.arrays[buffers[f"layers.{layer}.router"]][0].astype(np.float64)
            bias = self._binding.arrays[buffers[f"model.layers.{layer}.mlp.gate.e_score_correction_bias"]][0]
            scores = (1 / (1 + np.exp(-logits)) + bias).reshape(facts.groups, -1)
            groups = np.sort(np.sort(scores, axis=1)[:, -2:].sum(axis=1))[::-1]
            kept = np.argsort(-np.sort(scores, axis=1)[:, -2:].sum(axis=1))[: facts.kept_groups]
            experts = np.sort(scores[kept].reshape(-1))[::-1]
            for values, taken in ((groups, facts.kept_groups), (experts, facts.active)):
                if taken < len(values):
                    margin = min(margin, float(values[taken - 1] - values[taken]))
        return margin

    def close(self) -> None:
        """End the workers."""
        self._resident.stop()
