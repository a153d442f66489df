"""Configuration of a decode node; its command line options are made from it."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from tilert_connector import ReceiverConfig

__all__ = ["DecodeConfig"]


class DecodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One decode node: model, engine, HTTP address, handoff ports."""

    model: Annotated[str, Meta(description="Directory of the Hugging Face checkpoint that the prefill server runs.")]
    host: Annotated[str, Meta(description="Address to serve HTTP on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="HTTP port; 0 takes a free one.")] = 8200
    slots: Annotated[int, Meta(ge=1, le=64, description="Requests whose state fits at a time; one is decoded.")] = 1
    max_tokens: Annotated[
        int, Meta(ge=1, description="Most tokens of one request, prompt and reply; at most what the model reaches.")
    ] = 4096
    workers: Annotated[
        int, Meta(ge=0, le=256, description="Resident workers; 0 takes as many as the model's size is worth.")
    ] = 0
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        Meta(description="Dtype of weights and state, as vLLM's --dtype; auto takes the checkpoint's."),
    ] = "auto"
    block_size: Annotated[
        int, Meta(ge=1, description="The prefill server's --block-size; only GQA models depend on it.")
    ] = 128
    revision: Annotated[str, Meta(description="Revision that both ends must name.")] = ""
    policy: Annotated[
        Literal["list", "round_robin", "zigzag", "wave", "pinned"], Meta(description="How the plan places its tasks.")
    ] = "list"
    plan: Annotated[
        str,
        Meta(description="Plan file to run, with FILE.certificate beside it; both are written when there is no FILE."),
    ] = ""
    state_wait_s: Annotated[
        float, Meta(gt=0, le=3600, description="Seconds to wait for a request's state when it names no limit.")
    ] = 30.0
    hang_s: Annotated[
        float, Meta(gt=0, le=3600, description="Seconds after which a wait inside a step is a failure.")
    ] = 10.0
    receiver: Annotated[ReceiverConfig, Meta(description="Handoff ports and time limits.")] = ReceiverConfig()
