"""`tiny-gqa`: Qwen3 architecture, grouped-query attention with query and key norms.

Tensor names and shapes as `transformers/models/qwen3/modeling_qwen3.py` reads them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deploy.checkpoints.draw import Tensors, matrix, norm
from deploy.checkpoints.shape import BRANCH, HIDDEN, LENGTH, ROPE, SHARP, ends, mlp
from deploy.checkpoints.tokenizer import Vocabulary

__all__ = ["config", "tensors"]

LAYERS, HEADS, KV_HEADS, HEAD_DIM, WIDTH = 4, 4, 2, 64, 512


def config(vocabulary: Vocabulary) -> dict[str, Any]:
    """The architecture part of `config.json`."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": vocabulary.size,
        "hidden_size": HIDDEN,
        "intermediate_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": LENGTH,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "rope_parameters": ROPE,
    }


def _attention(name: str) -> dict[str, NDArray[np.float32]]:
    return {
        f"{name}.q_proj.weight": matrix(f"{name}.q_proj", HEADS * HEAD_DIM, HIDDEN),
        f"{name}.k_proj.weight": matrix(f"{name}.k_proj", KV_HEADS * HEAD_DIM, HIDDEN),
        f"{name}.v_proj.weight": matrix(f"{name}.v_proj", KV_HEADS * HEAD_DIM, HIDDEN),
        f"{name}.o_proj.weight": matrix(f"{name}.o_proj", HIDDEN, HEADS * HEAD_DIM, 2 * BRANCH),
        f"{name}.q_norm.weight": norm(f"{name}.q_norm", HEAD_DIM, SHARP),
        f"{name}.k_norm.weight": norm(f"{name}.k_norm", HEAD_DIM, SHARP),
    }


def tensors(vocabulary: Vocabulary) -> Tensors:
    """All weights, float32."""
    weights = ends(vocabulary)
    for index in range(LAYERS):
        layer = f"model.layers.{index}"
        for part in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{layer}.{part}.weight"] = norm(f"{layer}.{part}", HIDDEN)
        weights |= _attention(f"{layer}.self_attn")
        weights |= dict(mlp(f"{layer}.mlp", WIDTH))
    return weights
