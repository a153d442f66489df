"""What `speedtier bench simulate` simulates."""

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["SimulateBenchConfig"]


class SimulateBenchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model on a machine that is not here: decode speed by context, with and without speculation, by batch."""

    model: Annotated[str, Meta(description="A model with built-in facts, or the directory of a checkpoint.")] = (
        "glm-5.1"
    )
    device: Annotated[str, Meta(description="The machine, as for `plan compile`.")] = "8xB200"
    draft_depth: Annotated[int, Meta(ge=1, le=7, description="Draft tokens that a step verifies, for `mtp`.")] = 3
    acceptance: Annotated[float, Meta(ge=1, description="Tokens that such a step commits on average.")] = 3.2
    output: Annotated[int, Meta(ge=2, description="Tokens of output; steps are taken at the middle of it.")] = 1024
    pictures: Annotated[str, Meta(description="Directory to draw the pictures of docs/simulation.md into.")] = ""
    json: Annotated[str, Meta(description="File to write the figures to.")] = ""
