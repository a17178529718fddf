"""Compiled kernels: none outlives a change of any source beside it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest
from support.kernels import CALLED, KEPT, forget_older_kernels, pausing_for_compilation

import streameval
import streameval as se

PACKAGE = Path(streameval.__file__).parent


def at(path: Path, seconds: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    os.utime(path, (seconds, seconds))
    return path


def test_kernels_older_than_any_source_are_forgotten(tmp_path: Path) -> None:
    sources = [at(tmp_path / "kernel.py", 10), at(tmp_path / "called.py", 30)]
    old = at(tmp_path / "__pycache__" / "kernel.f-1.py311.nbi", 20)
    new = at(tmp_path / "__pycache__" / "called.g-1.py311.nbi", 40)
    assert forget_older_kernels(sources, [tmp_path]) == [old]
    assert list(old.parent.iterdir()) == [new]
    assert forget_older_kernels(sources, [tmp_path]) == []


def test_kernels_are_older_than_a_source_of_another_folder(tmp_path: Path) -> None:
    folders = [tmp_path / "distances", tmp_path / "kernels"]
    sources = [at(folders[0] / "sums.py", 30), at(folders[1] / "counting.py", 10)]
    old = at(folders[1] / "__pycache__" / "counting.f-1.py311.nbi", 20)
    assert forget_older_kernels(sources, folders) == [old]


def test_a_folder_without_kernels_is_left_alone(tmp_path: Path) -> None:
    source = at(tmp_path / "kernel.py", 10)
    assert forget_older_kernels([source], [tmp_path]) == []
    assert forget_older_kernels([source], [tmp_path / "absent"]) == []
    assert forget_older_kernels([tmp_path / "absent.py"], [tmp_path]) == []


def test_kernels_are_forgotten_wherever_they_are_kept_and_whatever_they_call() -> None:
    texts = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
    kernels = {path: text for path, text in texts.items() if "@compiled" in text}
    assert {path.parent for path in kernels} == {(PACKAGE / folder).resolve() for folder in KEPT}
    own = {path: text for path, text in texts.items() if path in kernels or "@intrinsic" in text}
    known = {path for pattern in CALLED for path in PACKAGE.glob(pattern)}
    for path, text in kernels.items():
        for name in re.findall(r"^from streameval\.([\w.]+) import", text, re.MULTILINE):
            called = PACKAGE / f"{name.replace('.', '/')}.py"
            assert called not in own or called in known, f"{path} calls into {called}"


KINDS = """
import numpy as np, streameval as se
rng = np.random.default_rng(0)
q, g = rng.standard_normal((9, 5)).astype("f4"), rng.standard_normal((80, 5)).astype("f4")
sides = [se.Labels(id=rng.integers(0, 4, n), cam=rng.integers(0, 3, n)) for n in (9, 80)]
labels = {"query": sides[0], "gallery": sides[1]}
for source in (se.Features(q, g), se.Features(q, g, "manhattan"), se.Distances(q @ g.T)):
    for protocol in ("market1501", "cuhk03"):
        se.evaluate(source, **labels, protocol=protocol)
"""


def kernels(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.nb?")}


def run(code: str, folder: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], env=environment, cwd=folder, check=True
    )


@pytest.mark.slow
def test_a_second_start_compiles_nothing(tmp_path: Path) -> None:
    """In a copy: other tests may compile at the same time."""
    unfinished = shutil.ignore_patterns("*.tmp.*")
    shutil.copytree(PACKAGE, tmp_path / PACKAGE.name, ignore=unfinished)
    run(KINDS, tmp_path)
    before = kernels(tmp_path)
    run(KINDS, tmp_path)
    assert before
    assert kernels(tmp_path) == before


def test_an_import_leaves_compiled_kernels_alone(tmp_path: Path) -> None:
    package = tmp_path / "streameval"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    stale = at(package / "kernels" / "__pycache__" / "counting.f-1.py311.nbi", 20)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    imports = "import streameval.kernels.counting, streameval.single_shot.counter"
    subprocess.run([sys.executable, "-c", imports], env=environment, cwd=tmp_path, check=True)
    assert stale.exists()
    forget = "from streameval.kernels.caches import forget_stale_kernels as forget; forget()"
    subprocess.run([sys.executable, "-c", forget], env=environment, cwd=tmp_path, check=True)
    assert not stale.exists()


CALLS = """
import numpy as np
from streameval import compilation

@compilation.compiled
def counted(number):
    if number < 0:
        raise ValueError("less than none")
    return np.arange(number).sum()

@compilation.compiled
def twice(number):
    return 2 * counted(number)

@compilation.compiled
def of_constants(number):
    k = 0
    while k < number:
        k += twice(3)
    return twice(1) + twice(2) + k
"""


@pytest.mark.slow
def test_a_kernel_is_inlined_from_one_that_was_kept(tmp_path: Path) -> None:
    (tmp_path / "called.py").write_text(CALLS)
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    environment.pop("NUMBA_CACHE_DIR", None)

    def says(code: str) -> str:
        command = [sys.executable, "-c", f"import called; {code}"]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True)
        return (done.stdout + done.stderr).decode()

    assert says("print(called.counted(4))") == "6\n"
    assert says("print(called.twice(4), called.counted(5))") == "12 10\n"
    for kept in (tmp_path / "__pycache__").glob("*counted*.nb?"):
        kept.unlink()
    before = kernels(tmp_path)
    assert len(before) == 2  # a list of what is kept, and the one that calls
    assert says("print(called.twice(5))") == "20\n"
    assert "ValueError: less than none" in says("called.twice(-1)")
    assert kernels(tmp_path) == before


@pytest.mark.slow
def test_kernels_are_compiled_where_none_can_be_kept(tmp_path: Path) -> None:
    (tmp_path / "called.py").write_text(CALLS)
    for name in ("__pycache__", "file"):
        (tmp_path / name).touch()
    nowhere = {"HOME": "file", "XDG_CACHE_HOME": "file"}
    environment = {**os.environ, **nowhere, "PYTHONPATH": str(PACKAGE.parent)}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-c", "import called; print(called.counted(4), called.twice(4))"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "6 12\n"
    assert done.stderr.count("compiled kernels can't be kept anywhere") == 1


def test_a_kernel_is_compiled_once_for_all_constants(tmp_path: Path) -> None:
    (tmp_path / "called.py").write_text(CALLS)
    code = "import called; print(called.of_constants(7), called.twice.signatures)"
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "14 [(int64,)]\n"


class Pauses(se.Progress):
    """Notes when work waits, and for what."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def pause(self, reason: str) -> None:
        self.noted.append(reason)

    def resume(self) -> None:
        self.noted.append("resumed")


def test_work_pauses_once_while_kernels_are_compiled() -> None:
    @numba.njit
    def inner(x: int) -> int:
        return x + 1

    @numba.njit
    def outer(x: int) -> int:
        return inner(x) * 2

    pauses = Pauses()
    with pausing_for_compilation(pauses):
        assert outer(1) == 4
        assert pauses.noted == ["compiling", "resumed"]
        assert outer(2) == 6
    assert outer(2.0) == 6
    assert pauses.noted == ["compiling", "resumed"]
