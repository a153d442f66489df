"""Files and functions stay small: DESIGN section 9."""

import ast
import statistics

from tests.architecture.sources import ROOT, files, tree


def length(text: str) -> int:
    return len(text.splitlines())


def test_no_file_is_over_400_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): length(path.read_text()) for path in (*files(), *files("tests"))}
    assert {name: lines for name, lines in lengths.items() if lines > 400} == {}


def test_most_files_are_short() -> None:
    lengths = sorted(length(path.read_text()) for path in files())
    assert statistics.median(lengths) <= 100
    assert lengths[int(len(lengths) * 0.9)] <= 250


def test_no_function_is_over_60_lines() -> None:
    long = {}
    for path in (*files(), *files("tests")):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > 60:
                    long[f"{path.relative_to(ROOT)}:{node.name}"] = lines
    assert long == {}
