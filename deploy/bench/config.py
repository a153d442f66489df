"""What `speedtier bench decode` measures."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = ["OPPONENTS", "DecodeBenchConfig", "FidelityBenchConfig"]

OPPONENTS = ("vllm", "transformers")


class DecodeBenchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One comparison: the same weights, the same prompt, greedy, one request at a time."""

    model: Annotated[str, Meta(description="tiny-mla, tiny-gqa, or the directory of a checkpoint.")] = "tiny-mla"
    against: Annotated[str, Meta(description="Comma-separated: vllm, transformers; empty for none.")] = "vllm"
    tokens: Annotated[int, Meta(ge=8, description="Tokens decoded in a round.")] = 128
    context: Annotated[int, Meta(ge=1, description="Prompt tokens before them.")] = 64
    rounds: Annotated[int, Meta(ge=1, description="Interleaved rounds; medians are reported.")] = 5
    workers: Annotated[int, Meta(ge=0, description="Resident workers; 0 as the decode node chooses.")] = 0
    threads: Annotated[int, Meta(ge=0, description="Threads of the opponents; 0 all cores.")] = 0
    dtype: Annotated[Literal["auto", "float32", "bfloat16"], Meta(description="Dtype of weights and state.")] = "auto"
    json: Annotated[str, Meta(description="File to write the figures to.")] = ""


class FidelityBenchConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Teacher-forced comparison: at each place of vLLM's greedy text, would the engine have chosen the same token?"""

    model: Annotated[str, Meta(description="tiny-mla, tiny-gqa, or the directory of a checkpoint.")] = "tiny-mla"
    dtype: Annotated[Literal["float32", "bfloat16"], Meta(description="Dtype of weights and state.")] = "bfloat16"
    prompts: Annotated[int, Meta(ge=1, description="Random prompts.")] = 40
    longest: Annotated[int, Meta(ge=1, description="Longest prompt, in tokens.")] = 200
    tokens: Annotated[int, Meta(ge=1, description="Tokens after each prompt.")] = 64
    json: Annotated[str, Meta(description="File to write the figures to.")] = ""
