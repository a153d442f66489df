"""Graphs of sparse attention, interpreted operator by operator, give the logits of transformers' models."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from persistent_engine.manifest import OPERATORS, check_dtypes, number, unify
from persistent_engine.models import DRAFT, Box, Graph, build_graph, facts_of, rope_table
from persistent_engine.models.config import describe
from persistent_engine.plan import BufferKind, Dtype, Register

Weights = dict[str, np.ndarray]
TOKENS, CAPACITY = 11, 16

SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_shared_experts": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.5,
    "q_lora_rank": 32,
    "kv_lora_rank": 24,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 8,
    "v_head_dim": 10,
    "index_n_heads": 16,  # so that no token scores exactly 0 with all heads: torch breaks ties as it likes
    "index_head_dim": 16,
    "index_topk": 4,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}
SHARED = {"indexer_types": ["full", "shared", "shared", "full"]}


def bounds(graph: Graph, box: Box, rows: int) -> tuple[int, int, int, int]:
    buffer, cut = graph.buffers[box.buffer], (0, rows * box.step)
    down = cut if box.split == "rows" else box.rows or (0, buffer.rows)
    across = cut if box.split == "cols" else box.cols or (0, buffer.cols)
    return (*down, *across)


def step(graph: Graph, weights: Weights, states: Weights, position: int, token: int) -> np.ndarray:
    """Run every node once; gives the logits."""
    registers: dict[int, float] = {Register.POSITION: position, Register.TOKEN: token, Register.TEMPERATURE: 0}
    memory = {
        name: np.zeros((buffer.rows, buffer.cols), buffer.dtype.numpy)
        for name, buffer in graph.buffers.items()
        if buffer.kind == BufferKind.ACTIVATION
    }
    for node in graph.nodes:
        args = []
        for box in node.boxes:
            if box.buffer in states:
                args.append(states[box.buffer])
                continue
            top, bottom, left, right = bounds(graph, box, node.rows)
            args.append((memory | weights)[box.buffer][top:bottom, left:right])
        OPERATORS[number(node.operator)].reference(args, node.params, (0, node.rows), registers)
    return memory["logits"][0].copy()


def of_checkpoint(graph: Graph, tensors: Weights, rope: int) -> Weights:
    """The graph's weight buffers. Experts are packed in transformers' models."""
    found = {"rope": rope_table(1e4, graph.capacity, rope)}
    for name, buffer in graph.buffers.items():
        if buffer.kind != BufferKind.WEIGHT or name == "rope":
            continue
        if ".experts." in name and "shared" not in name:
            prefix, part = name.rsplit(".", 1)
            packed = tensors[f"{prefix}.{'down_proj' if part == 'down_proj' else 'gate_up_proj'}"]
            half = packed.shape[1] // 2
            rows = {"gate_proj": slice(half), "up_proj": slice(half, None), "down_proj": slice(None)}[part]
            found[name] = packed[:, rows].reshape(buffer.rows, buffer.cols)
        else:
            found[name] = tensors[name].reshape(buffer.rows, buffer.cols)
    return found


def glm(transformers: Any) -> tuple[Any, Any]:
    return transformers.GlmMoeDsaConfig(**SMALL, **SHARED), transformers.GlmMoeDsaForCausalLM


def deepseek(transformers: Any) -> tuple[Any, Any]:
    return transformers.DeepseekV32Config(**SMALL), transformers.DeepseekV32ForCausalLM


@pytest.mark.contract("E7")
@pytest.mark.parametrize("part_tokens", [0, 3])
@pytest.mark.parametrize("family", [glm, deepseek])
def test_logits_are_those_of_transformers(family: Callable[[Any], tuple[Any, Any]], part_tokens: int) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config, model_class = family(transformers)
    config._attn_implementation = "eager"
    torch.manual_seed(5)
    model = model_class(config).eval().float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name and "bias" not in name else 0.0, 0.15)
    tokens = torch.randint(0, 96, (1, TOKENS))
    with torch.no_grad():
        expected = model(tokens, use_cache=False).logits[0].numpy()
    sharing = SHARED if family is glm else {}
    facts = describe({**SMALL, **sharing, "architectures": [model_class.__name__]}, "small")
    graph = build_graph(facts, CAPACITY, 1, Dtype.F32, part_tokens=part_tokens)
    tensors = {name: value.numpy() for name, value in model.state_dict().items()}
    weights = of_checkpoint(graph, tensors, facts.rope.width)
    states = {n: np.zeros(b.rows * b.cols, np.float32) for n, b in graph.buffers.items() if b.kind == BufferKind.STATE}
    for position, token in enumerate(tokens[0].tolist()):
        logits = step(graph, weights, states, position, token)
        np.testing.assert_allclose(logits, expected[position], rtol=1e-3, atol=1e-4, err_msg=f"token {position}")


@pytest.mark.contract("P2")
@pytest.mark.parametrize(("name", "depth", "parts"), [("glm-5.1", 3, 64), ("glm-5.2", 0, 0), ("deepseek-v3.2", 1, 128)])
def test_every_node_of_a_published_model_fits_its_operator(name: str, depth: int, parts: int) -> None:
    graph = build_graph(
        facts_of(name),
        8192,
        1,
        Dtype.BF16,
        weight_dtype=Dtype.FP8,
        kept_dtype=Dtype.BF16,
        draft_depth=depth,
        part_tokens=parts,
    )
    for node in graph.nodes:
        operator, boxes = OPERATORS[number(node.operator)], [bounds(graph, box, node.rows) for box in node.boxes]
        assert unify(operator, boxes, node.params, (0, node.rows)) is None, node.label
        assert check_dtypes(operator, [graph.buffers[box.buffer].dtype for box in node.boxes]) is None, node.label
    assert sum(node.operator == "choose" for node in graph.nodes) == depth
    assert sum(node.label.startswith(DRAFT) and node.operator == "index_select" for node in graph.nodes) == depth
