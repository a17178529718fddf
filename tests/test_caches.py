"""Compiled kernels: none outlives a change of any source beside it."""

from __future__ import annotations

import os
from pathlib import Path

from support.kernels import forget_older_kernels


def at(path: Path, seconds: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    os.utime(path, (seconds, seconds))
    return path


def test_kernels_older_than_any_source_are_forgotten(tmp_path: Path) -> None:
    at(tmp_path / "kernel.py", 10)
    at(tmp_path / "called.py", 30)
    old = at(tmp_path / "__pycache__" / "kernel.f-1.py311.nbi", 20)
    new = at(tmp_path / "__pycache__" / "called.g-1.py311.nbi", 40)
    assert forget_older_kernels([tmp_path]) == [old]
    assert list(old.parent.iterdir()) == [new]
    assert forget_older_kernels([tmp_path]) == []


def test_kernels_are_older_than_a_source_of_another_folder(tmp_path: Path) -> None:
    folders = [tmp_path / "distances", tmp_path / "kernels"]
    at(folders[0] / "sums.py", 30)
    at(folders[1] / "counting.py", 10)
    old = at(folders[1] / "__pycache__" / "counting.f-1.py311.nbi", 20)
    assert forget_older_kernels(folders) == [old]


def test_a_folder_without_kernels_is_left_alone(tmp_path: Path) -> None:
    at(tmp_path / "kernel.py", 10)
    assert forget_older_kernels([tmp_path]) == []
    assert forget_older_kernels([tmp_path / "absent"]) == []
