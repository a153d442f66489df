"""`tiny-mla`: DeepSeek-V3 architecture, latent attention, routed and shared experts, one draft layer.

Tensor names as DeepSeek-V3's own checkpoint has them; the draft layer stands at index `num_hidden_layers`
(`vllm/model_executor/models/deepseek_mtp.py`). A cache row is 512 latent values and 64 rotary ones: what
vLLM's latent attention wants on the CPU.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deploy.checkpoints.draw import Tensors, matrix, norm, vector
from deploy.checkpoints.shape import BRANCH, HIDDEN, LENGTH, ROPE, SHARP, ends, mlp
from deploy.checkpoints.tokenizer import Vocabulary

__all__ = ["config", "tensors"]

LAYERS, DENSE_LAYERS, HEADS = 3, 1, 4
Q_RANK, KV_RANK, NOPE, ROTARY, VALUE = 128, 512, 64, 64, 32
WIDTH, EXPERT_WIDTH, EXPERTS, ACTIVE, GROUPS, ACTIVE_GROUPS = 512, 128, 8, 2, 2, 1
SCALING = 2.5  # routed experts' share, DeepSeek-V3's value


def config(vocabulary: Vocabulary) -> dict[str, Any]:
    """The architecture part of `config.json`. vLLM needs `topk_method` and `scoring_func` spelled out."""
    return {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "vocab_size": vocabulary.size,
        "hidden_size": HIDDEN,
        "intermediate_size": WIDTH,
        "moe_intermediate_size": EXPERT_WIDTH,
        "num_hidden_layers": LAYERS,
        "num_nextn_predict_layers": 1,
        "first_k_dense_replace": DENSE_LAYERS,
        "moe_layer_freq": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "q_lora_rank": Q_RANK,
        "kv_lora_rank": KV_RANK,
        "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROTARY,
        "v_head_dim": VALUE,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "num_experts_per_tok": ACTIVE,
        "n_group": GROUPS,
        "topk_group": ACTIVE_GROUPS,
        "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
        "norm_topk_prob": True,
        "routed_scaling_factor": SCALING,
        "hidden_act": "silu",
        "max_position_embeddings": LENGTH,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "rope_interleave": True,
        "rope_parameters": ROPE,
    }


def _attention(name: str) -> dict[str, NDArray[np.float32]]:
    return {
        f"{name}.q_a_proj.weight": matrix(f"{name}.q_a_proj", Q_RANK, HIDDEN),
        f"{name}.q_a_layernorm.weight": norm(f"{name}.q_a_layernorm", Q_RANK),
        f"{name}.q_b_proj.weight": matrix(f"{name}.q_b_proj", HEADS * (NOPE + ROTARY), Q_RANK, SHARP),
        f"{name}.kv_a_proj_with_mqa.weight": matrix(f"{name}.kv_a_proj_with_mqa", KV_RANK + ROTARY, HIDDEN, SHARP),
        f"{name}.kv_a_layernorm.weight": norm(f"{name}.kv_a_layernorm", KV_RANK),
        f"{name}.kv_b_proj.weight": matrix(f"{name}.kv_b_proj", HEADS * (NOPE + VALUE), KV_RANK, SHARP),
        f"{name}.o_proj.weight": matrix(f"{name}.o_proj", HIDDEN, HEADS * VALUE, 1.5 * BRANCH),
    }


def _experts(name: str) -> dict[str, NDArray[np.float32]]:
    weights = {
        f"{name}.gate.weight": matrix(f"{name}.gate", EXPERTS, HIDDEN),
        f"{name}.gate.e_score_correction_bias": vector(f"{name}.gate.bias", EXPERTS, 0.1),
        **dict(mlp(f"{name}.shared_experts", EXPERT_WIDTH)),
    }
    for expert in range(EXPERTS):
        weights |= dict(mlp(f"{name}.experts.{expert}", EXPERT_WIDTH, BRANCH / SCALING))
    return weights


def _layer(index: int) -> dict[str, NDArray[np.float32]]:
    layer = f"model.layers.{index}"
    weights = {
        f"{layer}.{part}.weight": norm(f"{layer}.{part}", HIDDEN)
        for part in ("input_layernorm", "post_attention_layernorm")
    }
    weights |= _attention(f"{layer}.self_attn")
    weights |= dict(mlp(f"{layer}.mlp", WIDTH)) if index < DENSE_LAYERS else _experts(f"{layer}.mlp")
    return weights


def tensors(vocabulary: Vocabulary) -> Tensors:
    """All weights, float32; the draft layer has its own copy of embedding and head, as DeepSeek-V3's does."""
    weights = ends(vocabulary)
    for index in range(LAYERS + 1):
        weights |= _layer(index)
    draft = f"model.layers.{LAYERS}"
    for part in ("enorm", "hnorm", "shared_head.norm"):
        weights[f"{draft}.{part}.weight"] = norm(f"{draft}.{part}", HIDDEN)
    weights[f"{draft}.eh_proj.weight"] = matrix(f"{draft}.eh_proj", HIDDEN, 2 * HIDDEN)
    weights[f"{draft}.embed_tokens.weight"] = weights["model.embed_tokens.weight"]
    weights[f"{draft}.shared_head.head.weight"] = weights["lm_head.weight"]
    return weights
