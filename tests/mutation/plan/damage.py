"""Damaged plan files: what a disk, an older version, a careless editor or an enemy can make of one."""

import random
from collections.abc import Callable

import msgspec
import numpy as np

from persistent_engine.plan import TABLES, Plan, encode
from tests.mutation.plan.tables import Tables

__all__ = ["EXTREMES", "KINDS", "damaged", "extreme"]

EXTREMES = (-(2**31), 2**31 - 1, -1, 2**30, 65536)
"""Numbers that break sums, products and allocations."""


def flipped(rng: random.Random, plan: Plan) -> bytes:
    data = bytearray(encode(plan))
    for _ in range(rng.choice((1, 1, 2, 8))):
        data[rng.randrange(len(data))] ^= rng.randint(1, 255)
    return bytes(data)


def truncated(rng: random.Random, plan: Plan) -> bytes:
    data = encode(plan)
    return data[: rng.randrange(len(data))]


def grown(rng: random.Random, plan: Plan) -> bytes:
    return encode(plan) + rng.randbytes(rng.randint(1, 64))


def older(rng: random.Random, plan: Plan) -> bytes:
    return b"SPTPLAN1" + encode(plan)[8:]


def noise(rng: random.Random, plan: Plan) -> bytes:
    return encode(plan)[: rng.choice((0, 8, 8, 20, 100))] + rng.randbytes(rng.randint(0, 300))


def spliced(rng: random.Random, plan: Plan) -> bytes:
    data = encode(plan)
    at, start = rng.randrange(len(data)), rng.randrange(len(data))
    piece = data[start : start + rng.randint(1, 200)]
    return data[:at] + piece + data[at + len(piece) * rng.randint(0, 1) :]


def rehashed(rng: random.Random, plan: Plan) -> bytes:
    """Numbers changed, hash made to fit: only the rules can tell."""
    tables = Tables(plan)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        table = getattr(tables, rng.choice([name for name in TABLES if len(getattr(tables, name))]))
        row, column = rng.randrange(len(table)), rng.randrange(table.shape[1])
        near = min(max(int(np.nan_to_num(table[row, column])) + rng.choice((-1, 1)), EXTREMES[0]), EXTREMES[1])
        table[row, column] = rng.choice((*EXTREMES, 0, 1, 2, 3, near))
    return tables.file()


def reshaped(rng: random.Random, plan: Plan) -> bytes:
    """Rows dropped, doubled or shuffled, hash made to fit."""
    tables = Tables(plan)
    name = rng.choice(list(TABLES))
    table = getattr(tables, name)
    rows = list(range(len(table)))
    if rows and rng.random() < 0.5:
        del rows[rng.randrange(len(rows)) :]
    else:
        rng.shuffle(rows)
        rows += rows[: rng.randint(0, 3)]
    setattr(tables, name, table[rows])
    return tables.file()


def relabelled(rng: random.Random, plan: Plan) -> bytes:
    """Another manifest, hash made to fit."""
    manifest = plan.manifest
    extreme = rng.choice((*EXTREMES, 0, 2**63 - 1))
    other = rng.choice(
        (
            {"names": manifest.names[: rng.randrange(len(manifest.names))]},
            {"operators": manifest.operators[: rng.randrange(len(manifest.operators))]},
            {"operators": tuple(reversed(manifest.operators))},
            {"capacity": extreme},
            {"bucket": (extreme, rng.choice(EXTREMES))},
            {"weights": {"": ()}},
            {"limits": {"page_bytes": extreme, "index_topk": extreme}},
        )
    )
    return encode(Plan(msgspec.structs.replace(manifest, **other), **{n: getattr(plan, n) for n in TABLES}))


KINDS: tuple[Callable[[random.Random, Plan], bytes], ...] = (
    flipped,
    truncated,
    grown,
    older,
    noise,
    spliced,
    rehashed,
    rehashed,
    reshaped,
    relabelled,
)


def damaged(seed: int, plan: Plan) -> tuple[str, bytes]:
    """One damaged file and the kind of its damage."""
    rng = random.Random(seed)
    kind = rng.choice(KINDS)
    return kind.__name__, kind(rng, plan)


def extreme(plan: Plan, name: str, column: int, value: int) -> bytes:
    """A whole column of a table set to one number, hash made to fit."""
    tables = Tables(plan)
    table = np.array(getattr(tables, name))
    table[:, column] = value
    setattr(tables, name, table)
    return tables.file()
