"""Every block of docs/reranking.md runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT, blocks

BLOCKS = blocks((ROOT / "docs" / "reranking.md").read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((30, 8))
    for side, count in (("query", 30), ("gallery", 500)):
        ids, cams = rng.integers(0, 30, count), rng.integers(0, 3, count)
        rows = centres[ids] + 0.6 * rng.standard_normal((count, 8))
        np.save(f"{side}.npy", rows.astype(np.float32))
        lines = "".join(f"{one},{cam}\n" for one, cam in zip(ids, cams, strict=True))
        Path(f"{side}.csv").write_text("id,cam\n" + lines)
    return tmp_path


def test_shell_blocks_run(folder: Path, run_block: Callable[[str, Path], str]) -> None:
    for block in (block for language, block in BLOCKS if language == "bash"):
        assert run_block(block, folder)


@pytest.mark.usefixtures("folder")
def test_python_blocks_run(capsys: pytest.CaptureFixture[str]) -> None:
    for block in (block for language, block in BLOCKS if language == "python"):
        exec(compile(block, "reranking.md", "exec"), {})
    assert 0 < float(capsys.readouterr().out) <= 1
