"""Reading facts from a Hugging Face config.json.

Invariant: a field that changes what the model computes is read, or named as unsupported when it is not what the engine
on this machine runs; none is passed over.
"""

import json
from pathlib import Path
from typing import Any, Literal

from persistent_engine.models.facts import (
    ExpertFacts,
    GqaFacts,
    IndexerFacts,
    MlaFacts,
    ModelFacts,
    RopeFacts,
    runnable,
)
from speedtier.errors import PlanError

__all__ = ["describe", "plan_facts", "read_facts"]

ARCHITECTURES: dict[str, Literal["mla", "dsa", "gqa"]] = {
    "DeepseekV3ForCausalLM": "mla",
    "DeepseekV32ForCausalLM": "dsa",
    "GlmMoeDsaForCausalLM": "dsa",
    "Qwen3ForCausalLM": "gqa",
    "LlamaForCausalLM": "gqa",
}

Config = dict[str, Any]

_RUN: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("hidden_act", ("silu",)),
    ("attention_bias", (False,)),
    ("mlp_bias", (False,)),
    ("quantization_config", (None,)),
    ("use_sliding_window", (False,)),
    ("sliding_window", (None,)),
)
_RUN_EXPERTS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("scoring_func", ("sigmoid",)),
    ("topk_method", ("noaux_tc",)),
    ("moe_layer_freq", (1,)),
)


def _unsupported(config: Config, architecture: str) -> tuple[str, ...]:
    """What the engine on this machine lacks, by field."""
    family = ARCHITECTURES[architecture]
    fields = _RUN + (_RUN_EXPERTS if config.get("n_routed_experts") else ())
    if family != "gqa":
        fields += (("rope_interleave", (True,)),)
    found = [
        f"config.json: {field} is {config[field]!r}; the engine runs {' or '.join(map(repr, supported))} only"
        for field, supported in fields
        if config.get(field, supported[0]) not in supported
    ]
    scaling = _scaling(config)
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        found.append(f"config.json: rope type is {kind!r}; the engine runs 'default' only")
    if scaling.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0)) != 1.0:
        found.append("config.json: partial_rotary_factor is not 1.0; the engine rotates whole heads only")
    if family == "dsa":
        found.append(f"config.json: architecture is {architecture!r}; no engine here runs sparse attention")
    return tuple(found)


def _scaling(config: Config) -> Config:
    return config.get("rope_parameters") or config.get("rope_scaling") or {}


def _experts(config: Config) -> ExpertFacts | None:
    if not config.get("n_routed_experts"):
        return None
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


def _attention(config: Config, architecture: str) -> tuple[MlaFacts | GqaFacts, int]:
    if ARCHITECTURES[architecture] != "gqa":
        mla = MlaFacts(
            q_rank=config.get("q_lora_rank") or 0,
            rank=config["kv_lora_rank"],
            nope=config["qk_nope_head_dim"],
            rope=config["qk_rope_head_dim"],
            value=config["v_head_dim"],
        )
        return mla, mla.rope
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    kv_heads = config.get("num_key_value_heads") or heads
    return GqaFacts(kv_heads, head_dim, architecture == "Qwen3ForCausalLM"), head_dim


def _full_layers(config: Config) -> tuple[bool, ...]:
    """Which layers have an indexer, from the list, the pattern or the period, as transformers' config class does."""
    layers = config["num_hidden_layers"]
    kinds = config.get("indexer_types") or config.get("index_topk_pattern")
    if kinds is None:
        period, offset = max(config.get("index_topk_freq") or 1, 1), config.get("index_skip_topk_offset", 2)
        return tuple(max(layer - offset + 1, 0) % period == 0 for layer in range(layers))
    full = tuple(kind in ("full", "F") for kind in kinds)
    if len(full) != layers or not full[0]:
        first = "full" if full[:1] == (True,) else "not full"
        raise PlanError(
            f"config.json: indexer_types names {len(full)} layers, the first {first}; it needs"
            f" num_hidden_layers, {layers}, and a full one first"
        )
    return full


def _indexer(config: Config, architecture: str) -> IndexerFacts | None:
    if ARCHITECTURES[architecture] != "dsa":
        return None
    return IndexerFacts(
        heads=config["index_n_heads"],
        width=config["index_head_dim"],
        top_k=config["index_topk"],
        full=_full_layers(config),
        interleaved=architecture == "GlmMoeDsaForCausalLM",
    )


def describe(config: Config, where: str) -> ModelFacts:
    """Facts of a parsed config.json. where: named in errors.

    Raises: PlanError naming the field when it lacks one or the architecture is not known.
    """
    architecture = (config.get("architectures") or ["none"])[0]
    if architecture not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise PlanError(f"{where}: architecture {architecture!r} is not one that plans are made for ({known})")
    dtype: Any = config.get("dtype") or config.get("torch_dtype") or "float32"
    if dtype not in ("float32", "bfloat16"):
        raise PlanError(f"{where}: dtype is {dtype!r}; the engine runs 'float32' or 'bfloat16' only")
    try:
        attention, rotated = _attention(config, architecture)
        eos = config.get("eos_token_id")
        theta: Any = _scaling(config).get("rope_theta", config.get("rope_theta", 10000.0))
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
            rope=RopeFacts(float(theta), rotated),
            attention=attention,
            experts=_experts(config),
            eos=tuple(eos) if isinstance(eos, list) else () if eos is None else (eos,),
            indexer=_indexer(config, architecture),
            unsupported=_unsupported(config, architecture),
        )
    except KeyError as error:
        raise PlanError(f"{where}: field {error.args[0]!r} is missing") from error


def plan_facts(directory: Path) -> ModelFacts:
    """Facts of the config.json in `directory`, for plans of any machine; no weights are needed. Raises: PlanError."""
    path = directory / "config.json"
    try:
        config: Config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise PlanError(f"cannot read {path}: {error}; give the directory of a Hugging Face checkpoint") from error
    if not isinstance(config, dict):
        raise PlanError(f"cannot read {path}: it holds no object; give the directory of a Hugging Face checkpoint")
    return describe(config, str(path))


def read_facts(directory: Path) -> ModelFacts:
    """Facts of the checkpoint in `directory`, which the engine on this machine runs.

    Raises: PlanError naming the field when config.json is missing, lacks a field, or asks for what the engine lacks.
    """
    return runnable(plan_facts(directory))
