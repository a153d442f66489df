"""vLLM's endpoints and what becomes of each behind the router, as data.

Invariant (R10): what is not named here as passed reaches no server. A test compares the table with the routes of the
installed vLLM, so that an upgrade's new ones are decided on and never merely appear.
"""

from typing import Literal, NamedTuple

__all__ = ["ENDPOINTS", "OPERATOR", "OWN", "PASSED", "SOCKETS", "Passed", "for_operators", "refusal"]

Kind = Literal["json", "form", "none"]


class Passed(NamedTuple):
    """An endpoint that the native pool serves. ``body``: how its request is written. ``kept``: it may name something
    that one server alone keeps, so each is asked until one knows it. ``generates``: it writes tokens, so that a class
    of the speed tier falls back."""

    path: str
    methods: tuple[str, ...] = ("POST",)
    body: Kind = "json"
    kept: bool = False
    generates: bool = False


OWN = (
    "/docs",
    "/health",
    "/metrics",
    "/ready",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/models",
)
"""Served by the router itself, or by the tier of the request's class; ``/docs`` not at all."""

PASSED = (
    Passed("/v1/chat/completions/batch", generates=True),
    Passed("/v1/messages", generates=True),
    Passed("/v1/messages/count_tokens"),
    Passed("/v1/responses", kept=True, generates=True),
    Passed("/v1/responses/{response_id}", ("GET", "DELETE"), "none", kept=True),
    Passed("/v1/responses/{response_id}/cancel", ("POST",), "none", kept=True),
    Passed("/cohere/v2/chat", generates=True),
    Passed("/v1/embeddings"),
    Passed("/v2/embed"),
    Passed("/pooling"),
    Passed("/classify"),
    Passed("/score"),
    Passed("/v1/score"),
    Passed("/rerank"),
    Passed("/v1/rerank"),
    Passed("/v2/rerank"),
    Passed("/generative_scoring"),
    Passed("/v1/systemone"),
    Passed("/v1/audio/transcriptions", body="form"),
    Passed("/v1/audio/translations", body="form"),
    Passed("/tokenize"),
    Passed("/detokenize"),
    Passed("/tokenizer_info", ("GET",), "none"),
    Passed("/invocations"),
    Passed("/ping", ("GET", "POST"), "none"),
    Passed("/version", ("GET",), "none"),
)

SOCKETS = ("/v1/realtime",)
"""WebSockets, which the router does not relay."""

OPERATOR = (
    # Legs of the router's own exchange with prefill servers, and what undoes them.
    "/v1/chat/completions/render",
    "/v1/chat/completions/derender",
    "/v1/completions/render",
    "/v1/completions/derender",
    "/v1/messages/render",
    "/v1/responses/render",
    "/cohere/v2/chat/render",
    "/inference/v1/generate",
    "/inference/v1/abort_requests",
    "/abort_requests",
    # One server's inside, where several stand behind the router.
    "/load",
    "/server_info",
    "/kv_event_sources",
    "/readyz",
    "/static",
    # What changes or stops a server.
    "/adapters",
    "/adapters/{adapter_name}",
    "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter",
    "/collective_rpc",
    "/sleep",
    "/wake_up",
    "/is_sleeping",
    "/release_kv_cache_memory",
    "/reset_prefix_cache",
    "/reset_mm_cache",
    "/reset_encoder_cache",
    "/start_profile",
    "/stop_profile",
    "/scale_elastic_ep",
    "/is_scaling_elastic_ep",
    "/fault_tolerance/apply",
    "/fault_tolerance/status",
    "/pause",
    "/resume",
    "/is_paused",
    "/init_weight_transfer_engine",
    "/shutdown_weight_transfer_engine",
    "/start_weight_update",
    "/start_draft_weight_update",
    "/update_weights",
    "/finish_weight_update",
    "/update_weight_version",
    "/weight_info",
    "/weight_checker",
    "/get_world_size",
)
"""For whoever operates the servers, at the servers; clients of the router get 404."""

ENDPOINTS = frozenset({*OWN, *(each.path for each in PASSED), *SOCKETS, *OPERATOR})
_OPERATOR = frozenset(path.partition("/{")[0] for path in OPERATOR)


def for_operators(path: str) -> bool:
    """Whether a path is one of ``OPERATOR``, even where the pattern of a passed one fits it too."""
    return path.rstrip("/") in _OPERATOR or path.startswith("/adapters/")


def refusal(method: str, path: str) -> str:
    """Why a path that the router does not serve is not there."""
    if for_operators(path):
        return f"{method} {path} is for operators of vLLM; the router does not pass it on. Send it to the server itself"
    return f"{method} {path} is no endpoint of this router"
