"""Files that change while other commands read them: an error that names the file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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


TEMPLATE = "--images={side}/{row}.jpg"
READ: dict[str, tuple[str, Any, str, tuple[str, ...]]] = {
    # What is read; the function that reads it; the command.
    "labels": ("id.npy", Array, "read", ("--gallery-ids=id.npy", "--query-ids=qid.npy")),
    "a table": (
        "gallery.parquet",
        pq.ParquetFile,
        "read",
        ("--query-labels=query.csv", "--gallery-labels=gallery.parquet"),
    ),
    "lists": ("lists.npy", Array, "read", ("--neighbors=lists.npy", *SIDES, *LABELS)),
    "an index": ("copy.faiss", faiss, "read_index", (*SIDES, *LABELS, "--index=copy.faiss", "-k5")),
    "pictures": ("gallery.npy", Array, "read", ()),
}


@pytest.mark.parametrize("what", READ)
def test_what_else_changes_while_it_is_read(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.loadtxt("gallery.csv", int, delimiter=",", skiprows=1)
    np.save("id.npy", ids[:, 0])
    np.save("qid.npy", np.arange(12) % 9)
    pq.write_table(pa.table({"id": ids[:, 0], "cam": ids[:, 1]}), "gallery.parquet")
    lists = np.argsort(np.random.default_rng(1).random((12, 200)), axis=1)[:, :20]
    np.save("lists.npy", lists)
    save = ("--index=HNSW4", "-k5", "--save-index=kept.faiss")
    for made in (save, ("--out=result",)):
        done = CliRunner().invoke(main, ["evaluate", *SIDES, *LABELS, *made])
        assert done.exit_code == 0, done.output
    shutil.copy("kept.faiss", "copy.faiss")  # which this process has not opened
    file, owner, name, arguments = READ[what]
    content, whole = Path(file).read_bytes(), getattr(owner, name)
    times = []

    def read(*given: Any, **named: Any) -> Any:
        found = whole(*given, **named)
        if owner is not Array or Path(given[0].uri).name == file:
            times.append(1)
            changed = np.frombuffer(content, np.uint8).copy()
            changed[-40:] ^= 1
            Path(file).write_bytes(changed.tobytes())
        return found

    monkeypatch.setattr(owner, name, read)
    command = ("evaluate", *arguments, "--out=out")
    if what == "labels":
        command = (*command, *SIDES, "--protocol=no-camera")
    elif what == "a table":
        command = (*command, *SIDES)
    elif what == "pictures":
        command = ("report", "result", TEMPLATE, "--out=out.html")
    done = CliRunner().invoke(main, list(command))
    assert times, done.output
    assert done.exit_code not in (0, 1), done.output
    assert file in done.output
    assert not list(Path.cwd().glob("out*"))
