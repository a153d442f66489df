"""Pieces that all model families share: norm, projection, gated feed-forward, routed experts, head."""

from persistent_engine.models.facts import ExpertFacts, ModelFacts
from persistent_engine.models.graph import Box, Graph
from persistent_engine.plan import Dtype

__all__ = ["add_embedding", "add_feed_forward", "add_logits", "add_norm", "add_projection", "add_sample"]


def add_norm(graph: Graph, layer: int, x: str, weight: str, width: int, eps: float, out: str) -> str:
    """out = rmsnorm(x[:width]) x weight."""
    graph.vector(weight, width)
    graph.activation(out, width)
    graph.add("rmsnorm", out, layer, Box(x, cols=(0, width)), Box(weight), Box(out), params=(eps,))
    return out


def add_projection(
    graph: Graph,
    layer: int,
    weight: str,
    x: str,
    rows: int,
    cols: int,
    out: str,
    residual: str | None = None,
    kept: bool = False,
) -> str:
    """out = weight x (+ residual). kept: as `Graph.weight`."""
    graph.weight(weight, rows, cols, kept=kept)
    graph.activation(out, rows)
    boxes = [Box(weight, "rows"), Box(x)]
    if residual is not None:
        boxes.append(Box(residual, "cols"))
    operator = "matvec" if residual is None else "matvec_add"
    graph.add(operator, out, layer, *boxes, Box(out, "cols"), rows=rows)
    return out


def _add_gated(graph: Graph, layer: int, prefix: str, x: str, width: int, hidden: int, out: str) -> str:
    graph.weight(f"{prefix}.gate_proj.weight", width, hidden)
    graph.weight(f"{prefix}.up_proj.weight", width, hidden)
    graph.activation(out, width)
    graph.add(
        "gated",
        out,
        layer,
        Box(f"{prefix}.gate_proj.weight", "rows"),
        Box(f"{prefix}.up_proj.weight", "rows"),
        Box(x),
        Box(out, "cols"),
        rows=width,
    )
    return out


def _add_experts(
    graph: Graph, layer: int, facts: ModelFacts, experts: ExpertFacts, x: str, residual: str, tag: str
) -> str:
    prefix, hidden = f"model.layers.{layer}.mlp", facts.hidden
    router = f"{prefix}.gate.weight"
    logits = add_projection(graph, layer, router, x, experts.count, hidden, f"{tag}.router", kept=True)
    bias = graph.vector(f"{prefix}.gate.e_score_correction_bias", experts.count)
    ids = graph.activation(f"{tag}.expert_ids", experts.active, dtype=Dtype.I32)
    weights = graph.activation(f"{tag}.expert_weights", experts.active)
    graph.add(
        "expert_select",
        ids,
        layer,
        *(Box(name) for name in (logits, bias, ids, weights)),
        params=(experts.groups, experts.kept_groups, experts.scaling, float(experts.renormalise)),
    )
    stacked = {
        part: graph.weight(
            f"{prefix}.experts.{part}",
            experts.count * (hidden if part == "down_proj" else experts.width),
            experts.width if part == "down_proj" else hidden,
            *(f"{prefix}.experts.{e}.{part}.weight" for e in range(experts.count)),
        )
        for part in ("gate_proj", "up_proj", "down_proj")
    }
    chosen = graph.activation(f"{tag}.expert_hidden", experts.active * experts.width)
    graph.add(
        "expert_gated",
        chosen,
        layer,
        *(Box(name) for name in (stacked["gate_proj"], stacked["up_proj"], x, ids)),
        Box(chosen, "cols"),
        params=(experts.width,),
        rows=experts.active * experts.width,
    )
    if experts.shared:
        shared = f"{prefix}.shared_experts"
        width = experts.shared * experts.width
        inner = _add_gated(graph, layer, shared, x, width, hidden, f"{tag}.shared_hidden")
        residual = add_projection(
            graph, layer, f"{shared}.down_proj.weight", inner, hidden, width, f"{tag}.shared", residual
        )
    out = graph.activation(f"{tag}.out", hidden)
    fixed = (Box(stacked["down_proj"]), Box(chosen), Box(ids), Box(weights))
    graph.add(
        "expert_down_add", out, layer, *fixed, Box(residual, "cols"), Box(out, "cols"), params=(hidden,), rows=hidden
    )
    return out


def add_feed_forward(graph: Graph, layer: int, facts: ModelFacts, residual: str, tag: str = "") -> str:
    """The second half of a layer: norm, dense or routed feed-forward, residual. tag: before the names of activations,
    default `layers.<layer>`."""
    tag, prefix = tag or f"layers.{layer}", f"model.layers.{layer}"
    weight = f"{prefix}.post_attention_layernorm.weight"
    x = add_norm(graph, layer, residual, weight, facts.hidden, facts.eps, f"{tag}.mlp_norm")
    if facts.experts is not None and layer >= facts.experts.dense_layers:
        return _add_experts(graph, layer, facts, facts.experts, x, residual, tag)
    inner = _add_gated(graph, layer, f"{prefix}.mlp", x, facts.intermediate, facts.hidden, f"{tag}.hidden")
    down = f"{prefix}.mlp.down_proj.weight"
    return add_projection(graph, layer, down, inner, facts.hidden, facts.intermediate, f"{tag}.out", residual)


def add_embedding(graph: Graph, facts: ModelFacts) -> str:
    """The residual stream at the start: the row of the input token."""
    table = graph.weight("model.embed_tokens.weight", facts.vocabulary, facts.hidden, kept=True)
    x = graph.activation("embedding", facts.hidden)
    graph.add("embed", x, -1, Box(table), Box(x))
    return x


def add_logits(graph: Graph, facts: ModelFacts, residual: str, layer: int, norm: str, tag: str = "") -> tuple[str, str]:
    """Norm and head: the normalised hidden values and the logits. tag: before their names."""
    x = add_norm(graph, layer, residual, norm, facts.hidden, facts.eps, f"{tag}final_norm")
    weight = "model.embed_tokens.weight" if facts.tied else "lm_head.weight"
    out = f"{tag}logits"
    return x, add_projection(graph, layer, weight, x, facts.vocabulary, facts.hidden, out, kept=True)


def add_sample(graph: Graph, facts: ModelFacts, residual: str) -> None:
    """Final norm, logits, next token."""
    _, logits = add_logits(graph, facts, residual, facts.layers, "model.norm.weight")
    scratch = graph.activation("sample_scratch", facts.vocabulary, rows=2)
    graph.add("sample", "next_token", facts.layers, Box(logits), Box(scratch))
