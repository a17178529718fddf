"""Every block of docs/inputs.md runs, and it names every format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
from documents import ROOT, blocks
from support.arrays import FORMATS
from support.labels import NAMES

TEXT = (ROOT / "docs" / "inputs.md").read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)


def write_files(folder: Path) -> None:
    rng = np.random.default_rng(0)
    held = {}
    (folder / "images").mkdir()
    for side, count in (("query", 20), ("gallery", 300)):
        ids, cams = rng.integers(0, 8, count), rng.integers(1, 4, count)
        features = rng.standard_normal((count, 8), dtype=np.float32)
        held |= {f"{side}_f": features, f"{side}_label": ids, f"{side}_cam": cams}
        names = [
            f"{one:04d}_c{cam}s1_{at:06d}_00"
            for at, (one, cam) in enumerate(zip(ids, cams, strict=True))
        ]
        (folder / f"{side}.txt").write_text("".join(f"{name}.jpg\n" for name in names))
        if side == "gallery":
            for name, row in zip(names, features, strict=True):
                np.save(folder / "images" / name, row)
            for at, part in enumerate(np.array_split(features, 12)):
                np.save(folder / f"gallery-{at}.npy", part)
    for side in ("query", "gallery"):
        np.save(folder / f"{side}.npy", held[f"{side}_f"])
    with h5py.File(folder / "features.h5", "w") as file:
        file["query"], file["gallery"] = held["query_f"], held["gallery_f"]
    scipy.io.savemat(folder / "pytorch_result.mat", held)
    tracks = np.stack([0 * ids, 0 * ids, ids, cams], axis=1)
    scipy.io.savemat(folder / "tracks_test_info.mat", {"track_test_info": tracks.astype(float)})


def test_blocks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_block: Callable[[str, Path], str]
) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    shared: dict[str, object] = {}
    assert {language for language, _ in BLOCKS} == {"bash", "python"}
    for language, block in BLOCKS:
        if language == "python":
            exec(block, shared)
        else:
            assert run_block(block, tmp_path)


def test_every_format_and_name_is_told() -> None:
    for suffix in FORMATS:
        assert suffix in TEXT or suffix == ".parquet"
    for name in NAMES.values():
        assert f"`{name}`" in TEXT
