"""One entry per operator: its arguments, its parameters and its reference."""

from persistent_engine.manifest.comm import COMM
from persistent_engine.manifest.cost import Cost, Workload
from persistent_engine.manifest.draft import DRAFT
from persistent_engine.manifest.experts import EXPERTS
from persistent_engine.manifest.formats import from_float, to_float
from persistent_engine.manifest.gqa import GQA
from persistent_engine.manifest.indexer import INDEXER
from persistent_engine.manifest.linear import LINEAR
from persistent_engine.manifest.mla import MLA
from persistent_engine.manifest.operator import Operator, check_dtypes, cost, unify
from persistent_engine.manifest.sampling import SAMPLING, distribution, uniform
from persistent_engine.manifest.sparse import SPARSE

__all__ = [
    "OPERATORS",
    "Cost",
    "Operator",
    "Workload",
    "check_dtypes",
    "cost",
    "distribution",
    "from_float",
    "number",
    "to_float",
    "uniform",
    "unify",
]

OPERATORS: tuple[Operator, ...] = LINEAR + MLA + GQA + EXPERTS + SAMPLING + INDEXER + SPARSE + COMM + DRAFT
"""All operators; a plan's task carries the index, so new ones go to the end."""

_NUMBERS = {operator.name: index for index, operator in enumerate(OPERATORS)}


def number(name: str) -> int:
    """Index of the operator called `name`. Raises: KeyError."""
    return _NUMBERS[name]
