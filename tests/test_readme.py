"""Every shell and Python block of the README runs, and the scripts that it names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
BLOCKS = re.findall(
    r"^```(\w+)\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S
)
QUERIES, ITEMS, WIDTH = 12, 60, 8


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the data files that the README's examples name."""
    rng = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    for side, count in (("query", QUERIES), ("gallery", ITEMS)):
        ids, cams = rng.integers(0, 8, count), rng.integers(0, 3, count)
        np.save(f"{side}.npy", rng.standard_normal((count, WIDTH), dtype=np.float32))
        np.save(f"{side}_ids.npy", ids)
        np.save(f"{side}_cams.npy", cams)
        rows = "".join(f"{one},{cam}\n" for one, cam in zip(ids, cams, strict=True))
        Path(f"{side}.csv").write_text("id,cam\n" + rows)
    write_lists()
    stored = zarr.create_array("distances.zarr", shape=(QUERIES, ITEMS), chunks=(5, 16), dtype="f4")
    stored[...] = rng.random((QUERIES, ITEMS), dtype=np.float32)
    return tmp_path


def write_lists() -> None:
    """Write the positives and the junk of each query by number, from 1."""
    ids, cams = (
        [np.load(f"{side}_{column}.npy") for side in ("query", "gallery")]
        for column in ("ids", "cams")
    )
    same, camera = ids[0][:, None] == ids[1], cams[0][:, None] == cams[1]
    for name, listed in (("gt_index.txt", same & ~camera), ("jk_index.txt", same & camera)):
        lines = [" ".join(map(str, np.flatnonzero(row) + 1)) for row in listed]
        Path(name).write_text("\n".join(lines) + "\n")


def test_blocks_are_of_known_languages() -> None:
    assert {language for language, _ in BLOCKS} == {"bash", "python", "toml"}


@pytest.mark.usefixtures("folder")
def test_shell_blocks_run() -> None:
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    for language, block in BLOCKS:
        if language == "toml":
            Path("network.toml").write_text(block)
        if language != "bash":
            continue
        scripts = re.findall(r"^bash (\S+)", block, re.M)
        if scripts:  # set-up: they exist; test_demo runs one, the other is running
            assert all((ROOT / script).is_file() for script in scripts)
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), f"{block}\n{done.stderr}"
        assert done.stdout
    assert Path("result/summary.json").is_file()


def test_python_blocks_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared: dict[str, object] = {}
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, "README.md", "exec"), shared)
    assert capsys.readouterr().out
    assert (folder / "saved" / "statistics.zarr").is_dir()


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    environment = {**os.environ, "STREAMEVAL_VENV": sys.prefix}
    for _ in range(2):  # again: what is there is replaced
        done = subprocess.run(
            ["bash", str(ROOT / "scripts" / "demo.sh")],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "mAP" in done.stdout
        assert "29 in Q-" in done.stdout
    assert list(tmp_path.iterdir()) == []
