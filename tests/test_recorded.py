"""The fixed evaluations of `recorded` give exactly the recorded results."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded.evaluations import CASES
from recorded.record import FILE, compared, load, run
from spread import spread

RECORDED = load(FILE)


def test_every_case_is_recorded() -> None:
    assert list(RECORDED) == list(CASES)


@pytest.mark.parametrize("name", spread(CASES, of=3))
def test_result_is_recorded_result(name: str, tmp_path: Path) -> None:
    differing = compared(RECORDED[name], run(name, tmp_path))
    assert not differing, "\n".join([f"{len(differing)} values differ:", *differing[:40]])
