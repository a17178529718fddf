"""The structure of the package: small functions, small files, few places that know a kind."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

import streameval as se

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "streameval"
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
IDS = [str(path.relative_to(PACKAGE)) for path in FILES]

MOST_FILE_LINES = 400
MOST_CODE_LINES = 60
MOST_PARAMETERS = 8
MOST_FIELDS = 12
DECLARATIONS = {"Protocol", "Request", "RankStatistics", "Metric", "MetricOptions"}
KERNEL = re.compile(r"\b_?(njit|compiled|intrinsic|instruction|extending)\b")
KINDS = re.compile(r"\b(Features|Distances|Computed|StoredLists|IndexSearch|Neighbors)\b")
# What numba loads linear algebra for, a quarter of a second, in each process that calls the kernel.
WITH_LINALG = {
    *("all", "any", "argmax", "argmin", "bincount", "cumsum", "diff", "flatnonzero", "max", "mean"),
    *("min", "nonzero", "prod", "searchsorted", "sum", "where"),
}
OF_FEW_COMMANDS = {"reranking", "single_shot"}
ENTRY_POINTS = {*se.__all__, "__init__", "create", "append", "evaluate", "command"}


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text()))


def is_kernel(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(KERNEL.search(ast.unparse(decorator)) for decorator in function.decorator_list)


def code_lines(path: Path) -> set[int]:
    """Return the numbers of lines that hold code, not a comment or a docstring."""
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in blank | {tokenize.ENCODING, tokenize.ENDMARKER}:
                lines.update(range(token.start[0], token.end[0] + 1))
    for node in nodes(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            lines.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return lines


@pytest.mark.parametrize("path", FILES, ids=IDS)
def test_files_functions_and_classes_are_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_FILE_LINES
    lines = code_lines(path)
    for node in nodes(path):
        if isinstance(node, ast.ClassDef) and node.name not in DECLARATIONS:
            fields = sum(isinstance(statement, ast.AnnAssign) for statement in node.body)
            assert fields <= MOST_FIELDS, node.name
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        length = len(lines.intersection(range(node.lineno, node.end_lineno + 1)))
        assert length <= MOST_CODE_LINES, node.name
        if is_kernel(node):
            continue
        given = node.args
        positional = [
            arg for arg in given.posonlyargs + given.args if arg.arg not in ("self", "cls")
        ]
        keywords = [] if node.name in ENTRY_POINTS else given.kwonlyargs
        assert len(positional) + len(keywords) <= MOST_PARAMETERS, node.name
        assert given.kwarg is None or "cli" in path.parts, node.name


def test_few_places_ask_for_the_kind_of_a_source() -> None:
    asked = [
        f"{path}:{node.lineno}"
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "isinstance"
        and KINDS.search(ast.unparse(node.args[1]))
    ]
    assert len(asked) <= 3, asked


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.name == "__init__.py"],
    ids=lambda path: path.parent.name,
)
def test_packages_hold_no_code_but_exports(path: Path) -> None:
    for statement in ast.parse(path.read_text()).body:
        exports = isinstance(statement, ast.Import | ast.ImportFrom | ast.Assign | ast.Expr)
        root = path.parent == PACKAGE  # its names are loaded on first use
        assert exports or root, f"{path}:{statement.lineno}"


def test_kernels_of_every_command_load_no_linear_algebra() -> None:
    kernels = 0
    for path in FILES:
        functions = (node for node in nodes(path) if isinstance(node, ast.FunctionDef))
        for function in functions if path.parent.name not in OF_FEW_COMMANDS else ():
            if is_kernel(function):
                calls = (call.func for call in ast.walk(function) if isinstance(call, ast.Call))
                names = {call.attr for call in calls if isinstance(call, ast.Attribute)}
                assert not names & WITH_LINALG, f"{path}: {function.name}"
                kernels += 1
    assert kernels > 100


def test_tests_use_internals_by_the_facade() -> None:
    internal = re.compile(r"\s*(from|import) streameval\.")
    lines = [
        f"{path}: {line}"
        for path in TESTS
        if "support" not in path.parts and path != Path(__file__)
        for line in path.read_text().splitlines()
        if internal.match(line)
    ]
    assert len(lines) <= 30, lines
    assert not [line for line in lines if line.endswith("import *")]


def test_the_core_imports_without_a_disk_or_the_environment() -> None:
    """Only the folders of kernels that numba keeps may be looked at, by numba itself."""
    program = """
import builtins, os, pathlib, sys
import numba, numpy, llvmlite, threadpoolctl  # what these read is theirs
own = []
def watch(event, arguments):
    if event == "open" and not str(arguments[0]).endswith((".py", ".pyc")):
        if "streameval" in sys._getframe(1).f_code.co_filename:
            own.append((event, str(arguments[0])))
sys.addaudithook(watch)
get = os.environ.get
os.environ.get = lambda *given: own.append(("environment", given)) or get(*given)
import streameval.kernels, streameval.distances, streameval.planning, streameval.metrics
import streameval.protocols, streameval.statistics
os.environ.get = get
assert not own, own
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
