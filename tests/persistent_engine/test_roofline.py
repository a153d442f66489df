"""Roofline: what a step reads, counted by hand and by the graph, and held against what is published of it."""

import pytest

from persistent_engine.devices import device
from persistent_engine.manifest import Workload
from persistent_engine.models import KNOWN, facts_of
from persistent_engine.plan import Dtype
from persistent_engine.roofline import Need, needs, tokens_per_s


def total(name: str, dtype: Dtype, workload: Workload, kept: Dtype | None = None) -> Need:
    return sum(needs(facts_of(name), dtype, workload, kept_dtype=kept).values(), start=Need())


def glm_parameters() -> int:
    """Active parameters of GLM-5 in matrices, by hand."""
    hidden, heads, q_rank, rank, nope, rope, value = 6144, 64, 2048, 512, 192, 64, 256
    attention = hidden * q_rank + q_rank * heads * (nope + rope) + hidden * (rank + rope)
    attention += rank * heads * (nope + value) + heads * value * hidden
    indexer = q_rank * 32 * 128 + hidden * 128 + hidden * 32
    dense, expert = 3 * hidden * 12288, 3 * hidden * 2048
    routed = 9 * expert + 256 * hidden
    return 78 * (attention + indexer) + 3 * dense + 75 * routed + 154880 * hidden


def test_glm_reads_what_is_published_and_what_a_count_by_hand_gives() -> None:
    workload = Workload(1024)
    need = total("glm-5", Dtype.MXFP8, workload)
    assert need.weight_bytes / 1e9 == pytest.approx(42, rel=0.02)
    assert need.weight_bytes == pytest.approx(glm_parameters() * 8.25 / 8, rel=5e-4)  # the rest: norms, one row
    rate = tokens_per_s(need, Dtype.MXFP8, device("8xH200"), workload, state=False)
    assert rate == pytest.approx(914, rel=0.02)
    assert total("glm-5", Dtype.NVFP4, workload).weight_bytes == pytest.approx(glm_parameters() * 4.5 / 8, rel=5e-4)


def test_what_checkpoints_leave_in_bfloat16_costs_more() -> None:
    workload = Workload(1024)
    more = (
        total("glm-5", Dtype.FP8, workload, Dtype.BF16).weight_bytes - total("glm-5", Dtype.FP8, workload).weight_bytes
    )
    kept = 154880 * 6144 + 75 * 256 * 6144 + 78 * 32 * 6144 + 6144
    assert more == pytest.approx(kept, rel=0.01)


def test_state_grows_with_the_context_where_a_model_reads_all_of_it() -> None:
    near, far = (total("deepseek-v3", Dtype.FP8, Workload(n)).state_bytes for n in (1000, 4000))
    assert far == pytest.approx(4 * near)
    near, far = (needs(facts_of("glm-5"), Dtype.FP8, Workload(n)) for n in (4000, 8000))
    assert far["mla_attend_sparse"].state_bytes == near["mla_attend_sparse"].state_bytes == 78 * 2048 * 576 * 2
    assert far["index_scores"].state_bytes == 2 * near["index_scores"].state_bytes == 78 * 8000 * 128 * 2


def test_a_shared_top_k_saves_indexers() -> None:
    shared, own = (needs(facts_of(name), Dtype.FP8, Workload(8000)) for name in ("glm-5.2", "glm-5.1"))
    assert (shared["index_scores"].count, own["index_scores"].count) == (21, 78)


def test_batches_share_weights_and_spread_over_experts() -> None:
    one, eight = (needs(facts_of("glm-5"), Dtype.FP8, Workload(1024, n)) for n in (1, 8))
    assert eight["matvec"].weight_bytes == one["matvec"].weight_bytes
    assert (
        7 * one["expert_gated"].weight_bytes < eight["expert_gated"].weight_bytes < 8 * one["expert_gated"].weight_bytes
    )
    assert eight["mla_attend_sparse"].state_bytes == 8 * one["mla_attend_sparse"].state_bytes


@pytest.mark.parametrize("name", KNOWN)
def test_every_published_model_can_be_counted(name: str) -> None:
    need = total(name, Dtype.BF16, Workload(512))
    assert need.flops > need.weight_bytes * 0.9  # two flops for each two-byte weight, and attention
    assert need.state_bytes > 0


def test_drafts_read_the_draft_layer_and_the_head_again() -> None:
    workload = Workload(1024, tokens=4)
    facts = facts_of("glm-5")
    plain, drafted = (
        sum(needs(facts, Dtype.FP8, workload, draft_depth=depth).values(), start=Need()) for depth in (0, 3)
    )
    head = 154880 * 6144
    assert drafted.weight_bytes - plain.weight_bytes > 3 * head
