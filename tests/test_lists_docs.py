"""Every block of docs/lists.md runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT, blocks

TEXT = (ROOT / "docs" / "lists.md").read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    features = {}
    for side, count in (("query", 30), ("gallery", 500)):
        ids, cams = rng.integers(0, 30, count), rng.integers(0, 3, count)
        rows = np.random.default_rng(9).standard_normal((30, 8))[ids]
        features[side] = (rows + 0.6 * rng.standard_normal((count, 8))).astype("f4")
        np.save(f"{side}.npy", features[side])
        lines = "".join(f"{one},{cam}\n" for one, cam in zip(ids, cams, strict=True))
        Path(f"{side}.csv").write_text("id,cam\n" + lines)
    unit = [one / np.linalg.norm(one, axis=1, keepdims=True) for one in features.values()]
    distances = 1 - unit[0] @ unit[1].T
    indices = np.argsort(distances, axis=1)[:, :25]
    distances = np.take_along_axis(distances, indices, axis=1)
    np.savez("lists.npz", indices=indices, distances=distances)
    for name, rows in (("ids.ivecs", indices.astype("<i4")), ("distances.fvecs", distances)):
        heads = np.full((len(rows), 1), 25, "<i4").view(np.uint8)
        values = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
        Path(name).write_bytes(np.hstack([heads, values]).tobytes())
    return tmp_path


def test_shell_blocks_run(folder: Path, run_block: Callable[[str, Path], str]) -> None:
    for block in (block for language, block in BLOCKS if language == "bash"):
        assert run_block(block, folder)
    assert Path("settings.svg").is_file()
    assert Path("hnsw.faiss.json").is_file()


@pytest.mark.usefixtures("folder")
def test_python_blocks_run(capsys: pytest.CaptureFixture[str]) -> None:
    for block in (block for language, block in BLOCKS if language == "python"):
        exec(compile(block, "lists.md", "exec"), {})
    assert "Difference(" in capsys.readouterr().out
