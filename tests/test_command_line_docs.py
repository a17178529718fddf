"""Every block of docs/command-line.md runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT, blocks
from support.cli import ExitStatus

TEXT = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)


def test_exit_statuses_are_listed() -> None:
    listed = re.findall(r"^\| ([\d, ]+) \|", TEXT, re.M)
    assert [int(one) for row in listed for one in row.split(",")] == list(ExitStatus)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the files that the page names."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for side, count in (("query", 20), ("gallery", 80)):
        np.save(f"{side}.npy", rng.standard_normal((count, 8), dtype=np.float32))
        rows = "".join(f"{rng.integers(0, 9)},{rng.integers(0, 3)}\n" for _ in range(count))
        Path(f"{side}.csv").write_text("id,cam\n" + rows)
    return tmp_path


def test_blocks_run(folder: Path, run_block: Callable[[str, Path], str]) -> None:
    for language, block in BLOCKS:
        if language == "toml":
            Path("run.toml").write_text(block)
            continue
        assert language == "bash"
        run_block(block, folder)
    assert (folder / "again" / "summary.json").is_file()
