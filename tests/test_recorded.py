"""Fixed evaluations give what they gave when they were recorded, bit by bit: see `recorded`."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded.evaluations import CASES
from recorded.record import FILE, compared, load, possible, run

RECORDED = load(FILE)


def test_every_case_is_recorded() -> None:
    assert list(RECORDED) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_case_gives_what_is_recorded(name: str, tmp_path: Path) -> None:
    if not possible(name):
        pytest.skip("a package that the case needs is not installed")
    found = compared(RECORDED[name], run(name, tmp_path))
    assert not found, "\n".join([f"{len(found)} differ:", *found[:40]])
