"""What a reader meets first: names, docstrings, public faces."""

import ast
import re
from pathlib import Path

from tests.architecture.sources import PACKAGES, ROOT, files, tree

VAGUE = re.compile(r"(^|_)(utils?|manager|helpers?|impl|misc|common)(_|$)")
VERSION = re.compile(r"(^|_)v\d+(_|$)")


def names(paths: list[Path] | tuple[Path, ...]) -> list[str]:
    return [str(path.relative_to(ROOT)) for path in paths]


def test_every_folder_with_code_is_a_package() -> None:
    folders = {path.parent for path in files()}
    assert names([folder for folder in folders if not (folder / "__init__.py").is_file()]) == []


def test_every_package_says_what_is_public() -> None:
    def public(path: Path) -> bool:
        targets = [node.targets[0] for node in tree(path).body if isinstance(node, ast.Assign)]
        targets += [node.target for node in tree(path).body if isinstance(node, ast.AnnAssign)]
        return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)

    inits = [path for path in files() if path.name == "__init__.py"]
    assert len(inits) >= len(PACKAGES)
    assert names([path for path in inits if not public(path)]) == []


def test_every_module_says_what_it_is_for() -> None:
    assert names([path for path in files() if len(ast.get_docstring(tree(path)) or "") < 20]) == []


def test_no_name_is_vague_or_carries_a_version() -> None:
    parts = {part for path in files() for part in path.relative_to(ROOT).with_suffix("").parts}
    assert [part for part in sorted(parts) if VAGUE.search(part) or VERSION.search(part)] == []
