"""Numeric facts of a model, read from a Hugging Face config.json.

Invariant: what the engine cannot compute exactly is refused here by field name, never approximated.
"""

import json
from pathlib import Path
from typing import Any, Literal

import msgspec

from speedtier.errors import PlanError

__all__ = ["ExpertFacts", "GqaFacts", "MlaFacts", "ModelFacts", "RopeFacts", "read_facts"]

ARCHITECTURES: dict[str, Literal["mla", "gqa"]] = {
    "DeepseekV3ForCausalLM": "mla",
    "Qwen3ForCausalLM": "gqa",
    "LlamaForCausalLM": "gqa",
}


class RopeFacts(msgspec.Struct, frozen=True):
    """Rotary embedding: base, and how many values of a head are rotated."""

    theta: float
    width: int


class MlaFacts(msgspec.Struct, frozen=True):
    """Widths of multi-head latent attention. q_rank 0: queries are projected in one step."""

    q_rank: int
    rank: int
    nope: int
    rope: int
    value: int


class GqaFacts(msgspec.Struct, frozen=True):
    """Grouped-query attention. normed: queries and keys are normalised per head."""

    kv_heads: int
    head_dim: int
    normed: bool


class ExpertFacts(msgspec.Struct, frozen=True):
    """Routed experts of layers >= dense_layers."""

    count: int
    active: int
    width: int
    shared: int
    groups: int
    kept_groups: int
    scaling: float
    renormalise: bool
    dense_layers: int


class ModelFacts(msgspec.Struct, frozen=True):
    """All numbers that a graph builder needs. eos: token ids that end a reply."""

    architecture: str
    layers: int
    draft_layers: int
    hidden: int
    heads: int
    intermediate: int
    vocabulary: int
    eps: float
    tied: bool
    max_position: int
    dtype: Literal["float32", "bfloat16"]
    rope: RopeFacts
    attention: MlaFacts | GqaFacts
    experts: ExpertFacts | None
    eos: tuple[int, ...]


def _require(config: dict[str, Any], field: str, supported: tuple[Any, ...]) -> None:
    value = config.get(field, supported[0])
    if value not in supported:
        raise PlanError(f"config.json: {field} is {value!r}; the engine runs {' or '.join(map(repr, supported))} only")


def _rope(config: dict[str, Any], width: int) -> RopeFacts:
    scaling = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        raise PlanError(f"config.json: rope type is {kind!r}; the engine runs 'default' only")
    if scaling.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)) != 1.0:
        raise PlanError("config.json: partial_rotary_factor is not 1.0; the engine rotates whole heads only")
    return RopeFacts(float(scaling.get("rope_theta", config.get("rope_theta", 10000.0))), width)


def _experts(config: dict[str, Any]) -> ExpertFacts | None:
    if not config.get("n_routed_experts"):
        return None
    _require(config, "scoring_func", ("sigmoid",))
    _require(config, "topk_method", ("noaux_tc",))
    _require(config, "moe_layer_freq", (1,))
    return ExpertFacts(
        count=config["n_routed_experts"],
        active=config["num_experts_per_tok"],
        width=config["moe_intermediate_size"],
        shared=config.get("n_shared_experts") or 0,
        groups=config.get("n_group") or 1,
        kept_groups=config.get("topk_group") or 1,
        scaling=config.get("routed_scaling_factor", 1.0),
        renormalise=config.get("norm_topk_prob", True),
        dense_layers=config.get("first_k_dense_replace", 0),
    )


def _attention(config: dict[str, Any], architecture: str) -> tuple[MlaFacts | GqaFacts, int]:
    if ARCHITECTURES[architecture] == "mla":
        mla = MlaFacts(
            q_rank=config.get("q_lora_rank") or 0,
            rank=config["kv_lora_rank"],
            nope=config["qk_nope_head_dim"],
            rope=config["qk_rope_head_dim"],
            value=config["v_head_dim"],
        )
        _require(config, "rope_interleave", (True,))
        return mla, mla.rope
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    kv_heads = config.get("num_key_value_heads") or heads
    return GqaFacts(kv_heads, head_dim, architecture == "Qwen3ForCausalLM"), head_dim


def read_facts(directory: Path) -> ModelFacts:
    """Facts of the checkpoint in `directory`.

    Raises: PlanError naming the field when config.json is missing, lacks a field, or asks for what the engine lacks.
    """
    path = directory / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PlanError(f"cannot read {path}: {error}; give the directory of a Hugging Face checkpoint") from error
    architecture = (config.get("architectures") or ["none"])[0]
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise PlanError(f"{path}: architecture {architecture!r} is not one the engine runs ({known})")
    _require(config, "hidden_act", ("silu",))
    _require(config, "attention_bias", (False,))
    _require(config, "mlp_bias", (False,))
    _require(config, "quantization_config", (None,))
    _require(config, "use_sliding_window", (False,))
    _require(config, "sliding_window", (None,))
    dtype: Any = config.get("dtype") or config.get("torch_dtype") or "float32"
    if dtype not in ("float32", "bfloat16"):
        raise PlanError(f"{path}: dtype is {dtype!r}; the engine runs 'float32' or 'bfloat16' only")
    try:
        attention, rotated = _attention(config, architecture)
        eos = config.get("eos_token_id")
        return ModelFacts(
            architecture=architecture,
            layers=config["num_hidden_layers"],
            draft_layers=config.get("num_nextn_predict_layers") or 0,
            hidden=config["hidden_size"],
            heads=config["num_attention_heads"],
            intermediate=config["intermediate_size"],
            vocabulary=config["vocab_size"],
            eps=config.get("rms_norm_eps", 1e-6),
            tied=bool(config.get("tie_word_embeddings", False)),
            max_position=config["max_position_embeddings"],
            dtype=dtype,
            rope=_rope(config, rotated),
            attention=attention,
            experts=_experts(config),
            eos=tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,),
        )
    except KeyError as error:
        raise PlanError(f"{path}: field {error.args[0]!r} is missing") from error
