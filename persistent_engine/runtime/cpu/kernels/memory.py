"""Typed views of raw addresses inside kernels, and the float conversions.

Kernels get addresses because a plan's buffers resolve at load: one table of integers drives every task.
"""

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic

from persistent_engine.runtime.cpu.jit import kernel

__all__ = ["copy", "f32", "i32", "narrow", "view", "widen"]


@intrinsic
def _pointer(typingctx, address, like):
    def generate(context, builder, signature, args):
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(like.dtype)(types.int64, like), generate


_FLOAT = np.empty(0, np.float32)
_INTEGER = np.empty(0, np.int32)
_UNKNOWN = 1 << 40
"""Length of views: kernels index by shapes that the plan fixes, and nothing else knows the length."""


@kernel
def view(address, like):
    """Array at `address` with the element type of the array `like`."""
    return carray(_pointer(address, like), (_UNKNOWN,))


@kernel
def f32(address):
    """float32 array at `address`."""
    return carray(_pointer(address, _FLOAT), (_UNKNOWN,))


@kernel
def i32(address):
    """int32 array at `address`."""
    return carray(_pointer(address, _INTEGER), (_UNKNOWN,))


@kernel
def copy(source, target, count):
    """target[:count] = source[:count], four bytes each, whatever they mean."""
    for i in range(count):
        target[i] = source[i]


@intrinsic
def widen(typingctx, value):
    """float32 of a float32 (itself) or of a bfloat16 bit pattern (uint16)."""
    if value == types.float32:
        return types.float32(types.float32), lambda context, builder, signature, args: args[0]

    def generate(context, builder, signature, args):
        bits = builder.shl(builder.zext(args[0], ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(types.uint16), generate


@intrinsic
def narrow(typingctx, array, value):
    """`value` (float32) as an element of `array`: itself, or bfloat16 rounded to nearest even."""
    if array.dtype == types.float32:
        return types.float32(array, types.float32), lambda context, builder, signature, args: args[1]

    def generate(context, builder, signature, args):
        word = ir.IntType(32)
        bits = builder.bitcast(args[1], word)
        odd = builder.and_(builder.lshr(bits, ir.Constant(word, 16)), ir.Constant(word, 1))
        rounded = builder.add(builder.add(bits, ir.Constant(word, 0x7FFF)), odd)
        return builder.trunc(builder.lshr(rounded, ir.Constant(word, 16)), ir.IntType(16))

    return types.uint16(array, types.float32), generate
