"""Operators that no compiled CPU plan has: their references against plain definitions, and what each entry says."""

import itertools
from importlib import import_module

import numpy as np
import pytest

from persistent_engine.manifest import OPERATORS, Workload, cost, number
from persistent_engine.manifest.formula import Formula
from persistent_engine.manifest.signature import parse
from persistent_engine.plan import Dtype, Register, Role, WarpRole

Arrays = tuple[np.ndarray, ...]


def run(
    name: str, *args: np.ndarray, params: tuple[float, ...] = (), rows: tuple[int, int] = (0, 1), position: int = 0
) -> dict[int, float]:
    registers: dict[int, float] = {int(Register.POSITION): position}
    OPERATORS[number(name)].reference(args, params, rows, registers)
    return registers


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


def test_selection_takes_the_largest_and_of_equals_the_earlier() -> None:
    scores, ids = np.array([[1, 5, 5, 2, 5, 9]], np.float32), np.zeros((1, 3), np.int32)
    run("index_select", scores, ids, position=4)
    assert ids.tolist() == [[1, 2, 4]]
    run("index_select", scores, ids, position=5)
    assert ids.tolist() == [[1, 2, 5]]
    run("index_select", scores, ids, position=1)
    assert ids.tolist() == [[0, 1, -1]]


def test_scores_past_the_position_are_never_chosen() -> None:
    query, weights, state, out = draw(2, 4), draw(1, 2), draw(6 * 4), np.zeros((1, 6), np.float32)
    run("index_scores", query, weights, state, out, params=(0.5,), rows=(0, 6), position=2)
    keys = state.reshape(6, 4)[:3]
    expected = weights[0] @ np.maximum(query @ keys.T * 0.5, 0)
    np.testing.assert_allclose(out[0, :3], expected, rtol=1e-5)
    assert np.isneginf(out[0, 3:]).all()
    for first in range(0, 6, 2):
        piece = np.zeros((1, 2), np.float32)
        run("index_scores", query, weights, state, piece, params=(0.5,), rows=(first, first + 2), position=2)
        np.testing.assert_array_equal(piece[0], out[0, first : first + 2])


@pytest.mark.contract("E2")
def test_parts_put_together_are_attention_however_they_are_cut() -> None:
    heads, rank, rope, capacity, position = 3, 8, 4, 32, 20
    query, state = draw(heads, rank + rope), draw(capacity * (rank + rope))
    whole, scores = np.zeros((heads, rank), np.float32), np.zeros((heads, capacity), np.float32)
    run("mla_attend", query, state, scores, whole, params=(0.3, rank, rope), rows=(0, heads), position=position)
    found = []
    for cuts in ((0, 4), (0, 1, 2, 4), (0, 3, 4)):  # the parts that no token reaches are empty
        parts = np.full((4, heads * (rank + 2)), np.nan, np.float32)
        for first, last in itertools.pairwise(cuts):
            params, box = (0.3, rank, rope, 8), parts[first:last]
            run("mla_attend_part", query, state, box, params=params, rows=(first, last), position=position)
        out = np.zeros((heads, rank), np.float32)
        for head in range(heads):
            span = slice(head * (rank + 2), (head + 1) * (rank + 2))
            run("mla_combine", parts[:, span], out[head : head + 1], params=(rank,), rows=(head, head + 1))
        np.testing.assert_allclose(out, whole, rtol=1e-4, atol=1e-6)
        found.append(out)
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_sparse_attention_over_all_tokens_is_attention() -> None:
    query, state, position = draw(2, 6), draw(16 * 6), 9
    whole, sparse, scores = np.zeros((2, 4), np.float32), np.zeros((2, 4), np.float32), np.zeros((2, 16), np.float32)
    run("mla_attend", query, state, scores, whole, params=(0.5, 4, 2), rows=(0, 2), position=position)
    ids = np.array([[*range(10), -1, -1]], np.int32)
    run("mla_attend_sparse", query, state, ids, sparse, params=(0.5, 4, 2), rows=(0, 2), position=position)
    np.testing.assert_array_equal(sparse, whole)


def test_communication_copies_bits_and_sums_in_device_order() -> None:
    source = np.array([[np.nan, 1.5, -0.0]], np.float32)
    targets: Arrays = tuple(np.zeros_like(source) for _ in range(3))
    for name in ("put", "broadcast", "all_gather"):
        run(name, source, *targets[: 1 if name == "put" else 3])
        assert targets[0].tobytes() == source.tobytes()
    partials = np.array([[1e8], [1.0], [-1e8]], np.float32)
    out = np.zeros((1, 1), np.float32)
    run("all_reduce_sum", partials, np.array([[2.0]], np.float32), out)
    assert out[0, 0] == 2.0  # 1e8 + 1 is 1e8 in float32: another order would give 3


@pytest.mark.contract("E3")
@pytest.mark.parametrize(("drafted", "tokens"), [([4, 2], [4, 2, 7]), ([4, 3], [4, 2, -1]), ([5, 2], [4, -1, -1])])
def test_drafts_are_kept_while_they_are_what_the_model_chooses(drafted: list[int], tokens: list[int]) -> None:
    logits = np.zeros((3, 9), np.float32)
    logits[[0, 1, 2], [4, 2, 7]] = 1
    accepted = np.zeros((1, 3), np.int32)
    registers = run("verify", logits, np.array([drafted], np.int32), accepted)
    assert accepted[0].tolist() == tokens
    assert registers[Register.NEXT] == [token for token in tokens if token >= 0][-1]


def test_the_draft_layer_starts_from_both_norms_and_greedy_choices() -> None:
    embedding, hidden, ones = draw(1, 8), draw(1, 8), np.ones((1, 8), np.float32)
    out = np.zeros((1, 16), np.float32)
    run("draft_input", embedding, hidden, ones, 2 * ones, out, params=(0.0,))
    np.testing.assert_allclose(np.square(out[0, :8]).mean(), 1, rtol=1e-5)
    np.testing.assert_allclose(np.square(out[0, 8:]).mean(), 4, rtol=1e-5)
    choice, row = np.zeros((1, 1), np.int32), np.zeros((1, 3), np.float32)
    run("choose", np.array([[1, 3, 3, 0]], np.float32), choice)
    table = draw(4, 3)
    run("embed_drafted", table, choice, row)
    assert choice[0, 0] == 1
    np.testing.assert_array_equal(row[0], table[1])


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda one: str(one.name))
def test_an_entry_is_whole(operator: object) -> None:
    assert isinstance(operator, type(OPERATORS[0]))
    if operator.cpu:
        module, name = operator.cpu.split(".")
        assert hasattr(import_module(f"persistent_engine.runtime.cpu.kernels.{module}"), name)
    assert Formula(operator.flops)
    assert WarpRole.COMM in operator.warp_roles or not operator.remote


def test_selection_belongs_to_the_indexer_where_there_is_one() -> None:
    both = {Role.MLA, Role.INDEXER}
    select, attend, norm = (OPERATORS[number(name)] for name in ("index_select", "mla_attend", "rmsnorm"))
    assert select.allowed_on(Role.INDEXER, both) and not select.allowed_on(Role.MLA, both)
    assert attend.allowed_on(Role.MLA, both) and not attend.allowed_on(Role.INDEXER, both)
    assert all(norm.allowed_on(role, both) for role in both)
    assert select.allowed_on(Role.MLA, {Role.MLA})


def test_costs_are_bytes_with_scales_and_experts_that_tokens_choose() -> None:
    matvec, boxes = OPERATORS[number("matvec")], [(0, 128, 0, 256), (0, 1, 0, 256), (0, 1, 0, 128)]
    found = cost(matvec, boxes, [Dtype.NVFP4, Dtype.F32, Dtype.F32], (), (0, 128), Workload(1, batch=2))
    assert found.bytes == (128 * 256 * 4.5 / 8, 2 * 256 * 4, 2 * 128 * 4)
    assert found.flops == 2 * 2 * 128 * 256
    gated = OPERATORS[number("expert_gated")]
    boxes = [(0, 64 * 16, 0, 32), (0, 64 * 16, 0, 32), (0, 1, 0, 32), (0, 1, 0, 8), (0, 1, 0, 128)]
    dtypes = [Dtype.FP8, Dtype.FP8, Dtype.F32, Dtype.I32, Dtype.F32]
    one, many = (cost(gated, boxes, dtypes, (16,), (0, 128), Workload(1, batch=n)) for n in (1, 1000))
    assert one.bytes[0] == pytest.approx(8 * 16 * 32 * Dtype.FP8.bits / 8)
    assert many.bytes[0] == pytest.approx(64 * 16 * 32 * Dtype.FP8.bits / 8, rel=1e-6)
    with pytest.raises(ValueError, match="x: number of columns"):
        cost(matvec, [boxes[0], (0, 1, 0, 7), boxes[2]], [Dtype.F32] * 3, (), (0, 1024), Workload(1))


@pytest.mark.parametrize("text", ["__import__('os')", "n.real", "[n]", "n if n else 1", "lambda: 1"])
def test_formulas_are_arithmetic_only(text: str) -> None:
    with pytest.raises(ValueError, match="formula"):
        Formula(text)


@pytest.mark.parametrize("text", ["x f32", "x f64 [1,k]", "f32 [1,k]", ">> x f32 [1,k]"])
def test_declarations_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not of the form"):
        parse(text)
