"""Every block of docs/ledger.md runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT, blocks

TEXT = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)
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


@pytest.mark.slow
def test_shell_blocks_run(folder: Path, run_block: Callable[[str, Path], str]) -> None:
    for language, block in BLOCKS:
        if language == "bash":
            run_block(block, folder)
    assert Path("wednesday-result/summary.json").is_file()


@pytest.mark.usefixtures("folder")
def test_python_blocks_run() -> None:
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, "ledger.md", "exec"), {})
    assert Path("ledger/snapshots").is_dir()
