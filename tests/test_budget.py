"""The budget: what may be taken beyond what the process holds, by default half of what is free."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.package import default_budget, free_bytes, give_back
from support.run import budget

import streameval as se
from streameval import BudgetError

TESTS = Path(__file__).parent
FREE = psutil.virtual_memory().total  # more than is free: groups alone say less


def write(folder: Path, **files: object) -> None:
    """Write files of a control group: ``max=5`` into ``memory.max``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        (folder / f"memory.{name}").write_text(f"{value}\n")


def free(root: Path, *lines: str) -> int:
    """Return what is free to a process of the groups that these lines name."""
    (root / "own").write_text("".join(f"{line}\n" for line in lines))
    return free_bytes(root / "own", root)


def test_every_group_up_to_the_root_limits_what_is_free(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b", max="max", high="max", current=10_000)
    own = "0::/a/b"
    whole = free(tmp_path, own)
    assert whole > 10**6
    write(tmp_path / "a", max=90_000, current=30_000)
    assert free(tmp_path, own) == 60_000
    write(tmp_path / "a" / "b", max=65_000, current=10_000)
    assert free(tmp_path, own) == 55_000
    write(tmp_path / "a" / "b", high=50_000)
    assert free(tmp_path, own) == 40_000
    write(tmp_path / "a" / "b", stat="anon 1000\ninactive_file 4000")  # given up when needed
    assert free(tmp_path, own) == 44_000
    write(tmp_path / "a", current=95_000)
    assert free(tmp_path, own) == 0
    assert free(tmp_path, "0::/") > 10**6


def test_groups_of_version_1_and_those_of_a_container(tmp_path: Path) -> None:
    lines = ("9:cpu,cpuacct:/job", "4:memory:/job/step", "0::/")
    write(tmp_path / "memory" / "job", limit_in_bytes=70_000, usage_in_bytes=20_000)
    write(tmp_path / "memory" / "job" / "step", limit_in_bytes=2**63 - 4096, usage_in_bytes=1)
    assert free(tmp_path, *lines) == 50_000
    write(tmp_path / "memory" / "job", stat="total_inactive_file 5000")
    assert free(tmp_path, *lines) == 55_000
    # In a container the folder is the group's own, whatever its name outside.
    write(tmp_path / "memory", limit_in_bytes=30_000, usage_in_bytes=3_000)
    assert free(tmp_path, "4:memory:/docker/0123") == 27_000


def test_systems_without_groups_have_what_the_machine_has(tmp_path: Path) -> None:
    assert 0 < free_bytes(tmp_path / "none", tmp_path) <= FREE


@pytest.mark.parametrize(
    ("size", "processes", "expected"),
    [(20e9, 1, 8e9), (10e9, 1, 5e9), (10e9, 4, 1.25e9), (400e6, 1, 200e6), (200e9, 30, 3333333333)],
)
def test_the_default_is_half_of_what_is_free(size: float, processes: int, expected: float) -> None:
    assert default_budget(int(size), processes) == int(expected)


def test_too_little_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BudgetError, match=r"399 MB of memory is free.*200 MB is needed.*--memory"):
        default_budget(399_000_000)
    with pytest.raises(BudgetError, match=r"199\.0 MB is too small: at least 200 MB is needed"):
        budget("199MB")
    assert budget("200MB") == 200_000_000
    monkeypatch.setattr("streameval.run.session.free_bytes", lambda: 10**8)
    sides = {"query": se.Labels([1, 2], [1, 2]), "gallery": se.Labels([1, 2], [2, 1])}
    features = se.Features(np.eye(2), np.eye(2))
    with pytest.raises(BudgetError, match="100 MB of memory is free"):
        se.evaluate(features, **sides)
    found = se.evaluate(features, **sides, memory="2GB", metrics="CMC@1")
    assert found.provenance["plan"]["memory"] == 2 * 10**9


LIMITED = """
import resource
import psutil
from streameval.memory import free_bytes

held = psutil.Process().memory_info().vms
resource.setrlimit(resource.RLIMIT_AS, (held + 10**8, held + 10**8))
print(free_bytes())
"""


def test_a_limit_of_the_address_space_is_one_of_what_is_free() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, check=True
    )
    assert 0 <= int(done.stdout) <= 10**8


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library is not glibc")
def test_memory_that_was_freed_is_given_back() -> None:
    script = """if True:
        import numpy as np, psutil
        from support.package import give_back
        held = lambda: psutil.Process().memory_info().rss
        arrays = [np.ones(12_000) for _ in range(2_000)]  # each of them too small for a map
        del arrays[:-1]  # the last one lies behind all others
        before = held()
        give_back()
        print(before - held())
    """
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=TESTS)
    assert int(done.stdout) > 100_000_000


def test_another_c_library_keeps_what_was_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    monkeypatch.setattr("ctypes.CDLL", asked.append)  # None has no malloc_trim
    give_back()
    assert asked == [None]
