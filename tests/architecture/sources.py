"""The source tree as data, for the tests beside this file."""

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("speedtier", "tilert_connector", "router", "persistent_engine", "deploy")


class Import(NamedTuple):
    """`importer` names `imported`; `lazy` when it happens inside a function."""

    importer: str
    imported: str
    lazy: bool


@cache
def files(*tops: str) -> tuple[Path, ...]:
    """Python files below `tops` (default: the packages), generated ones and caches left out."""
    return tuple(sorted(path for top in tops or PACKAGES for path in (ROOT / top).rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[Import]:
    """Every import of a file. `from package import name` counts as `package.name`, a module or not."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node, lazy in _walk(tree(path), False):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, alias.name, lazy)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                yield Import(name, f"{base}.{alias.name}", lazy)


def _walk(node: ast.AST, lazy: bool) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            continue
        yield child, lazy
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _walk(child, lazy or inside)


def under(name: str, prefixes: tuple[str, ...]) -> bool:
    """Whether `name` is one of `prefixes` or below one."""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


@cache
def tracked() -> tuple[Path, ...]:
    """Files that are, or could be, committed; an exported tree without git gives every file of the
    packages.
    """
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        return files(*PACKAGES, "tests")
    return tuple(path for line in done.stdout.splitlines() if (path := ROOT / line).is_file())
