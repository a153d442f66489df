"""Copies and takes xxh3-64's sums in one pass, past the processor's caches.

Stores that bypass the caches spare reading what is overwritten, as libc's memcpy does for large sizes alone; the sums
cost next to nothing beside them. Source of the sums: the XXH3 specification (github.com/Cyan4973/xxHash,
doc/xxhash_spec.md), lengths above 240. Written in numba's language because no C compiler may be asked for where this
is installed. Importing this module compiles, or loads from numba's cache; `transport` itself goes without numba, and
asks for this when a carrier first wants it, in a process that has done its forking.

Invariant: when `move` returns, whoever is told about it afterwards sees the bytes.
"""

import os
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["move"]

I32, I64 = ir.IntType(32), ir.IntType(64)
LANES = ir.VectorType(I64, 8)
SWAP = ir.Constant(ir.VectorType(I32, 8), [1, 0, 3, 2, 5, 4, 7, 6])
SIGNATURE = types.void(*[types.int64] * 5)
AHEAD = 2048
"""Bytes that are fetched before they are read."""


def _all(value: int) -> Any:
    return ir.Constant(LANES, [value] * 8)


def _stripes(count: int, scramble: bool, streamed: bool) -> Any:
    """(sums, secret, the secret to scramble with, source, target: addresses): copies 64 * `count` bytes and sums them
    up. streamed: past the caches; the target then lies at a multiple of 64."""

    def generate(_context: Any, b: Any, _signature: Any, arguments: Any) -> Any:
        sums, secret, last, source, target = arguments

        def at(base: Any, offset: int) -> Any:
            return b.inttoptr(b.add(base, ir.Constant(I64, offset)), LANES.as_pointer())

        state = b.load(at(sums, 0), align=8)
        for number in range(count):
            value = b.load(at(source, 64 * number), align=1)
            if streamed:
                _fetch(b, b.add(source, ir.Constant(I64, 64 * number + AHEAD)))
            stored = b.store(value, at(target, 64 * number), align=64 if streamed else 1)
            if streamed:
                stored.set_metadata("nontemporal", b.module.add_metadata([ir.Constant(I32, 1)]))
            key = b.xor(value, b.load(at(secret, 8 * number), align=1))
            product = b.mul(b.and_(key, _all(0xFFFFFFFF)), b.lshr(key, _all(32)))
            state = b.add(b.add(state, b.shuffle_vector(value, value, SWAP)), product)
        if scramble:
            state = b.xor(state, b.lshr(state, _all(47)))
            state = b.xor(state, b.load(at(last, 0), align=1))
            state = b.mul(state, _all(0x9E3779B1))
        b.store(state, at(sums, 0), align=8)

    def typed(_typing: Any, sums: Any, secret: Any, last: Any, source: Any, target: Any) -> Any:
        return SIGNATURE, generate

    return intrinsic(typed)


def _fetch(b: Any, address: Any) -> None:
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    fetch = b.module.declare_intrinsic("llvm.prefetch", (byte,), kind)
    b.call(fetch, [b.inttoptr(address, byte), *(ir.Constant(I32, number) for number in (0, 3, 1))])


def _fence_type(_typing: Any) -> Any:
    """Streamed stores come before every later one."""

    def generate(_context: Any, b: Any, _signature: Any, _arguments: Any) -> Any:
        b.fence("seq_cst")

    return types.void(), generate


def _fetch_first_type(_typing: Any, _source: Any) -> Any:
    """The bytes of a piece that `_fetch` comes too late for."""

    def generate(_context: Any, b: Any, _signature: Any, arguments: Any) -> Any:
        for offset in range(0, AHEAD, 64):
            _fetch(b, b.add(arguments[0], ir.Constant(I64, offset)))

    return types.void(types.int64), generate


_fence = intrinsic(_fence_type)
_fetch_first = intrinsic(_fetch_first_type)
_streamed_block = _stripes(16, scramble=True, streamed=True)
_block = _stripes(16, scramble=True, streamed=False)
_stripe = _stripes(1, scramble=False, streamed=False)
_last_of_block = _stripes(1, scramble=True, streamed=False)


def _move(state, at, sources, sizes, targets, rooms, lines):  # type: ignore[no-untyped-def]
    """Move up to about `lines` cache lines of a frame: pieces of `sizes` bytes at `sources` fill `rooms` bytes at
    `targets`, one after another; all int64, sizes in whole lines. state: uint64[32], the 8 sums and then the seeded
    secret of 192 bytes. at: int64[6], where it stands: piece, bytes of it, target, bytes of it, lines, lines in all."""
    sums = state.ctypes.data
    secret = sums + 64
    scramble = secret + 128
    piece, taken, room, filled, done, total = at
    stop = min(total, done + lines)
    while done < stop:
        source, target = sources[piece] + taken, targets[room] + filled
        inside = done % 16
        left = min(sizes[piece] - taken, rooms[room] - filled)
        step = 0
        if inside == 0 and left >= 1024 and done + 16 < total:
            end = min(left // 1024 * 16, (total - done - 1) // 16 * 16, (stop - done + 15) // 16 * 16)
            if target % 64 == 0:
                if piece + 1 < sources.size:
                    _fetch_first(sources[piece + 1])
                for offset in range(0, end * 64, 1024):
                    _streamed_block(sums, secret, scramble, source + offset, target + offset)
            else:
                for offset in range(0, end * 64, 1024):
                    _block(sums, secret, scramble, source + offset, target + offset)
            step = end
        elif left:
            if done + 1 == total:
                _stripe(sums, secret + 121, scramble, source, target)
            elif inside == 15:
                _last_of_block(sums, secret + 120, scramble, source, target)
            else:
                _stripe(sums, secret + 8 * inside, scramble, source, target)
            step = 1
        done, taken, filled = done + step, taken + 64 * step, filled + 64 * step
        if taken == sizes[piece]:
            piece, taken = piece + 1, 0
        if filled == rooms[room]:
            room, filled = room + 1, 0
    at[0], at[1], at[2], at[3], at[4] = piece, taken, room, filled, done
    _fence()


def _compiled(keep: bool) -> Any:
    """Kept where numba keeps code by itself, also in a process that has another place for its own: the decode node
    compiles at its start, and the prefill nodes on its host only load."""
    place = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = os.environ.get("NUMBA_CACHE_DIR", "")
    try:
        return numba.njit(f"void(uint64[::1], {5 * 'int64[::1], '}int64)", nogil=True, cache=keep)(_move)
    finally:
        numba.config.CACHE_DIR = place


try:
    move = _compiled(keep=True)
except RuntimeError:  # nowhere to keep it
    move = _compiled(keep=False)
