"""Files that change while other commands read them: an error that names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from support.arrays import Array
from support.cli import main

LABELS = "--query-labels=query.csv", "--gallery-labels=gallery.csv"
SIDES = "--query=query.npy", "--gallery=gallery.npy"
COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "convert": (("convert", "gallery.npy", "out.zarr"), "out.zarr"),
    "audit": (("audit", *SIDES, *LABELS), ""),
    "index": (
        ("evaluate", *SIDES, *LABELS, "--index=IVF2,Flat", "-k5", "--save-index=out.faiss"),
        "out.faiss",
    ),
    "flat": (("evaluate", *SIDES, *LABELS, "--index=Flat", "-k5", "--out=out"), "out"),
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for side, count in (("query", 12), ("gallery", 200)):
        np.save(f"{side}.npy", rng.standard_normal((count, 8)).astype("f4"))
        rows = (f"{one},{side == 'query':d}" for one in rng.integers(0, 9, count))
        Path(f"{side}.csv").write_text("\n".join(["id,cam", *rows]) + "\n")


def rewrite() -> None:
    np.save("gallery.npy", np.ones((200, 8), "f4"))


@pytest.mark.parametrize("command", COMMANDS)
def test_features_that_change(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, out = COMMANDS[command]
    whole, count = Array.read, [0]

    def read(self: Array, *given: Any, **named: Any) -> Any:
        found = whole(self, *given, **named)
        if self.uri == "gallery.npy" and self.shape == (200, 8):
            count[0] += 1
            if count[0] == 1:
                rewrite()
        return found

    monkeypatch.setattr(Array, "read", read)
    done = CliRunner().invoke(main, list(arguments))
    assert count[0] > 0
    assert done.exit_code not in (0, 1), done.output
    assert "gallery.npy" in done.output
    assert "has changed" in done.output
    assert not out or not Path(out).exists()


def in_the_middle(monkeypatch: pytest.MonkeyPatch, name: str, changes: Callable[[], Any]) -> None:
    """Have something happen once the named method has read a file."""
    whole = getattr(Path, name)

    def read(self: Path, *given: Any, **named: Any) -> Any:
        found = whole(self, *given, **named)
        changes()
        return found

    monkeypatch.setattr(Path, name, read)


@pytest.mark.parametrize("kind", ["table", "protocol", "list"])
def test_tables_and_protocols_that_change(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mine.toml").write_text("ignore = []\n")
    Path("good.txt").write_text("1\n" * 12)
    file, name, more = {
        "table": ("gallery.csv", "open", ()),
        "protocol": ("mine.toml", "read_bytes", ("--protocol=mine.toml",)),
        "list": ("good.txt", "read_text", ("--good=good.txt",)),
    }[kind]
    text = Path(file).read_text()
    in_the_middle(monkeypatch, name, lambda: changed(file, text))
    done = CliRunner().invoke(main, ["evaluate", *SIDES, *LABELS, *more, "--out=out"])
    assert done.exit_code not in (0, 1), done.output
    assert file in done.output
    assert "has changed" in done.output
    assert not Path("out").exists()


def changed(file: str, text: str) -> None:
    with open(file, "w") as opened:  # noqa: PTH123 - Path.open is watched
        opened.write(text + "\n")
