"""The notebooks in examples/ run from top to bottom, and hold no output that may grow old."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from documents import ROOT
from spread import with_daily

NOTEBOOKS = {path.stem: path for path in sorted((ROOT / "examples").glob("*.ipynb"))}


@pytest.mark.parametrize("name", with_daily(NOTEBOOKS, "market1501"))
def test_notebooks_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("matplotlib", "pandas"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    shared: dict[str, object] = {}
    path = NOTEBOOKS[name]
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec(compile("".join(cell["source"]), path.name, "exec"), shared)


def test_there_are_notebooks() -> None:
    assert set(NOTEBOOKS) == {"growing_gallery", "market1501"}
