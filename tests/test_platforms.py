"""What not every system has is asked for where it is needed, or done without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

IMPORTS = """
import importlib, os, pkgutil, sys
import click, numba, numpy, psutil, pyarrow, rich, scipy, threadpoolctl, zarr  # for themselves
for name in ("fcntl", "grp", "msvcrt", "pwd", "resource", "termios", "winreg"):
    sys.modules[name] = None
for name in ("posix_fadvise", "pread", "preadv", "sched_getaffinity", "sendfile"):
    delattr(os, name)
import streameval
for module in pkgutil.walk_packages(streameval.__path__, "streameval."):
    if module.name != "streameval.__main__":
        importlib.import_module(module.name)
"""
EVALUATE = """
del os.sched_getaffinity
os.process_cpu_count = os.cpu_count  # which Python has built without affinity
import streameval as se
query, gallery = se.Labels(id=[3, 1]), se.Labels(id=[1, 3, 3])
features = se.Features("query.npy", "gallery.npy")
result = se.evaluate(features, query=query, gallery=gallery, protocol="no-camera")
result.save("result")
print(result["mAP"], result.provenance["machine"]["processor"])
"""


def run(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_import_without_what_some_systems_lack(tmp_path: Path) -> None:
    run(IMPORTS, tmp_path)


@pytest.mark.slow
def test_an_evaluation_without_what_only_linux_has(tmp_path: Path) -> None:
    """As on macOS: no affinity, no /proc and, but for late versions, no preadv."""
    np.save(tmp_path / "query.npy", np.eye(2))
    np.save(tmp_path / "gallery.npy", np.array([[0.0, 1.0], [0.9, 0.1], [1.0, 0.0]]))
    hidden = (
        "import os, pathlib\n"
        "del os.preadv\n"
        "read_text = pathlib.Path.read_text\n"
        "def absent(path, *given, **named):\n"
        "    if str(path).startswith(('/proc', '/sys')):\n"
        "        raise FileNotFoundError(str(path))\n"
        "    return read_text(path, *given, **named)\n"
        "pathlib.Path.read_text = absent\n"
    )
    assert run(hidden + EVALUATE, tmp_path).startswith("1.0 ")
    assert (tmp_path / "result" / "summary.json").is_file()
