"""Every block of docs/reports.md runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT, blocks
from PIL import Image

TEXT = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)


@pytest.mark.slow
def test_shell_blocks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_block: Callable[[str, Path], str]
) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    for side, count in (("query", 8), ("gallery", 30)):
        folder = Path("images") / side
        folder.mkdir(parents=True)
        rows = []
        for row in range(count):
            path = folder / f"{row:06d}.jpg"
            Image.fromarray(rng.integers(0, 256, (40, 20, 3), np.uint8)).save(path)
            rows.append(f"{rng.integers(0, 6)},{rng.integers(0, 3)},{path}\n")
        Path(f"{side}.csv").write_text("id,cam,path\n" + "".join(rows))
        for run in ("old", "new"):
            np.save(f"{run}_{side}.npy", rng.standard_normal((count, 8), dtype=np.float32))
    assert {language for language, _ in BLOCKS} == {"bash"}
    for _, block in BLOCKS:
        run_block(block, tmp_path)
    for page in ("report", "pictures", "of-a-column"):
        content = Path(f"{page}.html").read_text(encoding="utf-8")
        assert ("data:image/jpeg" in content) == (page != "report")
        assert "no image" not in content
