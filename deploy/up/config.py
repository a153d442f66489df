"""What `speedtier up` is told.

Invariant: the tables `decode` and `router` are checked against the parts' own structs before anything starts.
"""

from typing import Annotated, Any, Literal

import msgspec

__all__ = ["UpConfig", "VllmConfig"]


_Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
_Positive = Annotated[int, msgspec.Meta(ge=1)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Seconds = Annotated[float, msgspec.Meta(gt=0)]


def _note(text: str) -> msgspec.Meta:
    return msgspec.Meta(description=text)


class VllmConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The vLLM server that prefills and serves the native tier: yours by `url`, or one that is started."""

    url: Annotated[str, _note("A running vLLM to use; empty starts one.")] = ""
    cache_gib: Annotated[_Positive, _note("Key-value cache of the one that is started, in GiB (CPU).")] = 1
    threads: Annotated[_Count, _note("Threads of the one that is started; 0 chooses (CPU).")] = 0
    arguments: Annotated[tuple[str, ...], _note("More arguments for the one that is started.")] = ()
    start_timeout_s: Annotated[_Seconds, _note("Seconds that it may take to serve.")] = 600.0


class UpConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole stack on one machine."""

    model: Annotated[str, _note("Checkpoint directory, or tiny-mla or tiny-gqa.")]
    served_name: Annotated[str, _note("Name that clients use; empty: the directory's name.")] = ""
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16"],
        _note("Type that both tiers compute in, so vLLM's --dtype; auto: that of the checkpoint."),
    ] = "auto"
    host: Annotated[str, _note("Address that the router listens on.")] = "127.0.0.1"
    port: Annotated[_Port, _note("Port that the router listens on; 0 takes a free one.")] = 8000
    vllm: Annotated[VllmConfig, _note("The vLLM server.")] = VllmConfig()
    decode: Annotated[dict[str, Any], _note("Settings of the decode node beyond the ones above.")] = {}
    router: Annotated[dict[str, Any], _note("Settings of the router beyond the ones above.")] = {}
    directory: Annotated[str, _note("Where logs go; empty: a new one under .cache/runs.")] = ""
