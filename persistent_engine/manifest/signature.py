"""Signature: the shapes and dtypes that an operator's arguments must have, and whether given boxes fit them.

Notation of one argument, e.g. `>out f32 [1,rows]` or `state state [t,rank+rope] @ T*(rank+rope)*B`:

- `>` marks what is written; `*` after the name takes one or more arguments of that kind (last position only);
- `remote` after the dtypes: the argument may lie on another device;
- the word is a dtype class, see `DTYPES`: all arguments of one class in one task have the same dtype;
- `[a,b]` are rows and columns of the box. A bare name that is not known yet takes the size; anything else is a
  formula that must give it. In `e*(f)`, an unknown `e` takes size / f, which must be whole. Known from the start:
  the operator's params, and `rows` (how many units of the tileable range the task has), `first`, `last`;
- `@ formula` is how many elements one decode step touches, where that is not the whole box: of a table the rows that
  are looked up, of a state plane the tokens that are there. See `cost` for the names of the workload.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from persistent_engine.manifest.formula import compile_formula
from persistent_engine.plan import Dtype

__all__ = ["DTYPES", "Argument", "Box", "bind_shapes", "parse"]

Box = tuple[int, int, int, int]
"""row_first, row_last, col_first, col_last; half open, as in a plan's `args`."""

DTYPES: dict[str, frozenset[Dtype]] = {
    "f32": frozenset({Dtype.F32}),
    "i32": frozenset({Dtype.I32}),
    "vector": frozenset({Dtype.F32}),
    "matrix": frozenset({Dtype.F32, Dtype.BF16, Dtype.FP8, Dtype.MXFP8, Dtype.NVFP4}),
    "state": frozenset({Dtype.F32, Dtype.BF16, Dtype.FP8}),
    "any": frozenset(Dtype),
}
"""Dtype classes. vector: norm weights, biases, angles. matrix: what is multiplied. state: planes of a slot."""

_PATTERN = re.compile(
    r"(?P<written>>?)(?P<name>\w+)(?P<many>\*?) (?P<dtypes>\w+)(?P<remote> remote)? "
    r"\[(?P<rows>[^,\]]+),(?P<cols>[^,\]]+)\](?: @ (?P<touched>.+))?"
)
_PRODUCT = re.compile(r"(?P<unknown>\w+)\*(?P<rest>.+)")


@dataclasses.dataclass(frozen=True)
class Argument:
    """One argument of an operator. touched: "" for the whole box."""

    name: str
    written: bool
    many: bool
    dtypes: str
    remote: bool
    rows: str
    cols: str
    touched: str

    @property
    def marked(self) -> str:
        """The name, with a leading `>` if it is written."""
        return f">{self.name}" if self.written else self.name

    @property
    def shape(self) -> str:
        """`[rows,cols]` as declared."""
        return f"[{self.rows},{self.cols}]"


def parse(text: str) -> Argument:
    """An argument from its declaration. Raises: ValueError."""
    match = _PATTERN.fullmatch(text)
    if match is None or match["dtypes"] not in DTYPES:
        raise ValueError(f"argument {text!r} is not of the form '>name dtypes [rows,cols] @ touched'")
    return Argument(
        match["name"],
        bool(match["written"]),
        bool(match["many"]),
        match["dtypes"],
        bool(match["remote"]),
        match["rows"],
        match["cols"],
        match["touched"] or "",
    )


def _settle(text: str, size: int, known: dict[str, float]) -> bool | str | None:
    """None: holds. True: cannot be told yet. A string: what is wrong."""
    if text not in known and text.isidentifier():
        known[text] = size
        return None
    formula = compile_formula(text)
    missing = [name for name in formula.names if name not in known]
    if not missing:
        wanted = formula(known)
        return None if wanted == size else f"is {size}, {text} is {wanted:g}"
    product = _PRODUCT.fullmatch(text)
    if product is None or missing != [product["unknown"]]:
        return True
    rest = compile_formula(product["rest"])(known)
    if rest <= 0 or size % rest:
        return f"is {size}, not a multiple of {product['rest']}, {rest:g}"
    known[product["unknown"]] = size // rest
    return None


def bind_shapes(arguments: Sequence[Argument], boxes: Sequence[Box], known: Mapping[str, float]) -> dict[str, float]:
    """Sizes by name, `known` among them. One argument a box (see `expand`).

    Raises: ValueError that names the argument, for boxes that do not fit.
    """
    sizes = dict(known)
    open_ = [
        (argument.name, axis, text, box[2 * at + 1] - box[2 * at])
        for argument, box in zip(arguments, boxes, strict=True)
        for at, (axis, text) in enumerate((("rows", argument.rows), ("columns", argument.cols)))
    ]
    for name, axis, _text, size in open_:
        if size <= 0:
            raise ValueError(f"{name}: number of {axis} is {size}")
    while open_:
        left = []
        for name, axis, text, size in open_:
            found = _settle(text, size, sizes)
            if isinstance(found, str):
                raise ValueError(f"{name}: number of {axis} {found}")
            if found:
                left.append((name, axis, text, size))
        if len(left) == len(open_):
            raise ValueError(f"{left[0][0]}: number of {left[0][1]}, {left[0][2]}, follows from nothing")
        open_ = left
    return sizes
