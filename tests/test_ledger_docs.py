"""Every block of docs/ledger.md runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("icechunk")

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.M | re.S)
SIZES = {"query": 20, "more": 4, "monday": 90, "tuesday": 60, "wednesday": 30}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the files that the page names."""
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    for name, count in SIZES.items():
        np.save(f"{name}.npy", rng.standard_normal((count, 8), dtype=np.float32))
        rows = "".join(f"{rng.integers(0, 9)},{rng.integers(0, 3)}\n" for _ in range(count))
        Path(f"{name}.csv").write_text("id,cam\n" + rows)
    np.save("block.npy", rng.random((SIZES["query"], SIZES["monday"])))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_shell_blocks_run() -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for language, block in BLOCKS:
        if language == "bash":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block],
                env={**os.environ, "PATH": path},
                capture_output=True,
                text=True,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, ""), f"{block}\n{done.stderr}"
    assert Path("wednesday-result/summary.json").is_file()


@pytest.mark.usefixtures("folder")
def test_python_blocks_run() -> None:
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, "ledger.md", "exec"), {})
    assert Path("ledger/snapshots").is_dir()
