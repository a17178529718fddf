"""Every block of docs/reports.md runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
pytest.importorskip("jinja2", reason="jinja2 is not installed")

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs" / "reports.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.M | re.S)


def test_shell_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    assert {language for language, _ in BLOCKS} == {"bash"}
    for _, block in BLOCKS:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), f"{block}\n{done.stderr}"
    for page in ("report", "pictures", "of-a-column"):
        content = Path(f"{page}.html").read_text(encoding="utf-8")
        assert ("data:image/jpeg" in content) == (page != "report")
        assert "no image" not in content
