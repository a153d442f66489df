"""Registers: which step registers an operator touches, read off its reference, which defines it."""

import functools
from types import CodeType, FunctionType

from persistent_engine.manifest import OPERATORS
from persistent_engine.plan import Register

__all__ = ["READERS", "WRITERS", "named_registers"]


@functools.cache
def named_registers(function: FunctionType) -> frozenset[Register]:
    """Registers that `function`, or a function of the same module that it names, names."""
    seen: set[str] = set()
    names: set[str] = set()
    open_ = [function]
    while open_:
        code: CodeType = open_.pop().__code__
        names.update(code.co_names)
        for name in set(code.co_names) - seen:
            seen.add(name)
            called = function.__globals__.get(name)
            if isinstance(called, FunctionType):
                open_.append(called)
    return frozenset(register for register in Register if register.name in names)


WRITERS: frozenset[str] = frozenset(
    operator.name
    for operator in OPERATORS
    if isinstance(operator.reference, FunctionType) and Register.NEXT in named_registers(operator.reference)
)
"""Operators that decide the next token: they write the NEXT register."""

READERS: frozenset[str] = frozenset(
    operator.name
    for operator in OPERATORS
    if isinstance(operator.reference, FunctionType) and named_registers(operator.reference) - {Register.NEXT}
)
"""Operators that read a register of the step."""
