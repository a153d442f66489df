"""Knobs: what a caller may choose of a plan beside its model, its machine and its placement policy."""

from typing import Literal

import msgspec

from persistent_engine.plan import Dtype

__all__ = ["Granularity", "Knobs"]

Granularity = Literal["node", "group", "tile"]


class Knobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """events: `tile` has a counter for each task that others wait for, `node` one for all tasks of an operator on a
    device, `group` one for all where every reader needs all and else one each. tiles_per_worker: tasks of an operator,
    for each worker of a device. parts: that the chosen tokens of sparse attention are cut into (split KV); 0 for one
    per lane, at most 128; where there is one lane, attention is not cut. draft_depth: tokens that the step drafts.
    batch: requests a step, for plans that are simulated; no runtime takes more than one. weight_dtype: of matrices;
    None for the checkpoint's."""

    events: Granularity = "group"
    tiles_per_worker: int = 1
    parts: int = 0
    draft_depth: int = 0
    batch: Literal[1, 2, 4, 8] = 1
    weight_dtype: Dtype | None = None
