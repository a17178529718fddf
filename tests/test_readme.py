"""Every shell and Python block of the README runs, and the scripts that it names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from documents import (
    ROOT,
    blocks,
    check_printed,
    is_set_up,
    run_in_process,
    run_shell,
    write_example_files,
)

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the data files that the README's examples name."""
    write_example_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_blocks_are_of_known_languages() -> None:
    assert {language for language, _ in BLOCKS} == {"bash", "python", "text"}


def test_what_is_linked_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)|src=\"([^\"]+)", TEXT)
    assert links
    for link in map("".join, links):
        assert (ROOT / link).is_file(), link


@pytest.mark.parametrize(
    "run_block", [run_in_process, pytest.param(run_shell, marks=pytest.mark.slow)], indirect=True
)
def test_shell_blocks_run(folder: Path, run_block: Callable[[str, Path], str]) -> None:
    for language, block in BLOCKS:
        if language == "bash" and not is_set_up(block):
            assert run_block(block, folder)
    assert (folder / "result" / "summary.json").is_file()


def test_python_blocks_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shared: dict[str, object] = {}
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, "README.md", "exec"), shared)
    assert capsys.readouterr().out


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
        for language, block in BLOCKS:
            if language == "text":
                check_printed(block, done.stdout)
    assert list(tmp_path.iterdir()) == []
