"""What resident workers need below Python: atomic words, a pause, sleep and wake, a clock, a call to the event loop.

numba has no CPU atomics, and hoists a plain load out of a waiting loop, so these emit LLVM's atomic instructions; every
shared word goes through them. Words are int64, given as (array, index). System calls are the C library's.
"""

import platform

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from persistent_engine.runtime.cpu.jit import kernel

__all__ = [
    "add",
    "clock_ns",
    "load",
    "notify",
    "pause",
    "raise_word",
    "read_word",
    "sleep_on",
    "store",
    "wake",
    "yield_core",
]

_MACHINE = platform.machine()
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}.get(_MACHINE, -1)
_FUTEX_WAIT_PRIVATE = 128
_FUTEX_WAKE_PRIVATE = 129
_CLOCK_MONOTONIC = 1

_syscall = types.ExternalFunction("syscall", types.int64(*[types.int64] * 7))
_sched_yield = types.ExternalFunction("sched_yield", types.int32())
_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.uintp))
_write = types.ExternalFunction("write", types.int64(types.int32, types.uintp, types.uint64))


def _address(context, builder, array_type, array, index):
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


@intrinsic
def load(typingctx, array, index):
    """Acquire load of array[index]."""

    def generate(context, builder, signature, args):
        pointer = _address(context, builder, signature.args[0], args[0], args[1])
        return builder.load_atomic(pointer, "acquire", 8)

    return types.int64(array, types.int64), generate


@intrinsic
def store(typingctx, array, index, value):
    """Sequentially consistent store, so that a later `load` of another word is not moved before it."""

    def generate(context, builder, signature, args):
        pointer = _address(context, builder, signature.args[0], args[0], args[1])
        builder.store_atomic(args[2], pointer, "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(array, types.int64, types.int64), generate


@intrinsic
def add(typingctx, array, index, value):
    """Atomic array[index] += value (sequentially consistent); gives the value before."""

    def generate(context, builder, signature, args):
        pointer = _address(context, builder, signature.args[0], args[0], args[1])
        return builder.atomic_rmw("add", pointer, args[2], "seq_cst")

    return types.int64(array, types.int64, types.int64), generate


@intrinsic
def pause(typingctx):
    """Tell the core that this is a waiting loop."""

    def generate(context, builder, signature, args):
        if _MACHINE == "x86_64":
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", fnty=kind), [])
        elif _MACHINE == "aarch64":
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
            hint = builder.module.declare_intrinsic("llvm.aarch64.hint", fnty=kind)
            builder.call(hint, [ir.Constant(ir.IntType(32), 1)])
        return context.get_dummy_value()

    return types.void(), generate


@kernel
def yield_core():
    """Let another runnable thread have the core."""
    _sched_yield()


@kernel
def clock_ns(scratch):
    """CLOCK_MONOTONIC in nanoseconds, as time.monotonic_ns. scratch: int64[2] of the caller."""
    _clock_gettime(types.int32(_CLOCK_MONOTONIC), scratch.ctypes.data)
    return scratch[0] * 1_000_000_000 + scratch[1]


@kernel
def sleep_on(array, index, seen):
    """Sleep until `wake` while the low 32 bits of array[index] equal those of `seen` (little-endian words)."""
    _syscall(_SYS_FUTEX, array.ctypes.data + index * 8, _FUTEX_WAIT_PRIVATE, seen & 0x7FFFFFFF, 0, 0, 0)


@kernel
def wake(array, index):
    """Wake all that sleep on array[index]."""
    _syscall(_SYS_FUTEX, array.ctypes.data + index * 8, _FUTEX_WAKE_PRIVATE, 0x7FFFFFFF, 0, 0, 0)


@kernel
def notify(descriptor, scratch):
    """Add one to an eventfd. scratch: int64[2] of the caller."""
    scratch[0] = 1
    _write(types.int32(descriptor), scratch.ctypes.data, 8)


@kernel
def raise_word(array, index, value):
    """For Python: store a word and wake who sleeps on it."""
    store(array, index, value)
    wake(array, index)


@kernel
def read_word(array, index):
    """For Python: load a word."""
    return load(array, index)
