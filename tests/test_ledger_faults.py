"""What goes wrong around a ledger: processes killed, disks full, folders closed, bits flipped."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import streameval as se
from streameval import OutputError

HERE = Path(__file__).parent


def fill(folder: Path) -> None:
    """Make a ledger of two segments in the current folder."""
    import ledger_crashes

    ledger_crashes.write_inputs(folder)
    for change in ledger_crashes.CHANGES[:3]:
        change()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a ledger of two segments, and work beside it."""
    monkeypatch.chdir(tmp_path)
    fill(tmp_path)
    return tmp_path


def append() -> None:
    from ledger_crashes import labels

    se.Ledger("L").append("c.npy", labels("c"))


@pytest.mark.slow
def test_killed_at_any_moment_it_is_as_before_or_after(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "ledger_crashes.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert len(report["trials"]) == 4 * report["changes"]
    for trial in report["trials"]:
        assert trial["status"] == -signal.SIGKILL, trial
        assert trial["left"], trial
        assert trial["again"], trial


LATE = """
import asyncio.selector_events, threading, time
import streameval as se
Loop = asyncio.selector_events.BaseSelectorEventLoop
hand_over = Loop._write_to_self
def hand_over_slowly(self):
    hand_over(self)
    end = time.monotonic() + 0.5
    while threading.get_ident() not in {thread.ident for thread in threading.enumerate()}:
        if time.monotonic() > end:
            break
        time.sleep(1e-3)  # and take Python's lock again
Loop._write_to_self = hand_over_slowly
print(se.Ledger("L").head().gallery)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_a_thread_of_the_store_that_returns_late_does_not_abort_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{se.Ledger('L').head().gallery}\n"), done.stderr


@pytest.mark.usefixtures("folder")
def test_a_full_disk_changes_nothing() -> None:
    ledger = se.Ledger("L")
    before = ledger.evaluation().statistics
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, limits[1]))  # bytes of a file
        with pytest.raises(
            OutputError, match=r"can't be written .* as it was; mend that, and run it"
        ):
            append()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert ledger.evaluation().statistics.equals(before)
    append()
    assert ledger.verify() == []
    assert len(ledger.trajectory) == 4


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make a ledger and take the right to write from the process, whoever runs the tests."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.chdir(name)
        fill(Path(name))
        entries = [Path(name), Path("L"), *Path("L").rglob("*")]
        for entry in entries:
            entry.chmod(0o555 if entry.is_dir() else 0o444)
        if user == 0:
            os.seteuid(65534)
        yield
        os.seteuid(user)
        for entry in entries:
            entry.chmod(0o755 if entry.is_dir() else 0o644)
        monkeypatch.undo()


@pytest.mark.usefixtures("read_only")
def test_a_read_only_folder_is_read_and_not_changed() -> None:
    ledger = se.Ledger("L")
    before = ledger.evaluation().statistics
    with pytest.raises(OutputError, match=r"can't be written .*(Permission|permission|denied)"):
        append()
    assert ledger.evaluation().statistics.equals(before)
    assert ledger.verify() == []


def chunks(ledger: Path) -> list[Path]:
    return sorted((ledger / "snapshots/chunks").iterdir())


@pytest.mark.usefixtures("folder")
def test_a_flipped_bit_is_found_in_any_chunk() -> None:
    rng = np.random.default_rng(0)
    assert len(chunks(Path("L"))) > 4
    for place in chunks(Path("L")):
        whole = place.read_bytes()
        flipped = bytearray(whole)
        flipped[rng.integers(len(whole))] ^= 1 << rng.integers(8)
        place.write_bytes(flipped)
        found = se.Ledger("L").verify()
        assert found, place
        assert all("L can't be read" in line and "restore" in line for line in found)
        place.write_bytes(whole)
    assert se.Ledger("L").verify() == []


@pytest.mark.usefixtures("folder")
def test_a_damaged_ledger_says_so_and_past_snapshots_stay() -> None:
    before = se.Ledger("L").evaluation().statistics
    old = set(chunks(Path("L")))
    append()
    for place in set(chunks(Path("L"))) - old:
        place.write_bytes(place.read_bytes()[:-3])
    damaged = se.Ledger("L")
    change: Any
    for change in (damaged.evaluation, append, lambda: damaged.remove("a")):
        with pytest.raises(OutputError, match=r"can't be read .* restore them from a copy"):
            change()
    assert damaged.evaluation(2).statistics.equals(before)
    shutil.rmtree("L/snapshots/snapshots")
    with pytest.raises(OutputError, match="can't be read"):
        se.Ledger("L")


@pytest.mark.usefixtures("folder")
def test_a_ledger_that_has_lost_its_branch_is_not_made_anew_over_its_snapshots() -> None:
    from ledger_crashes import CHANGES

    refs = Path("L/snapshots/refs").rename("refs")
    before = {path: path.read_bytes() for path in Path("L").rglob("*") if path.is_file()}
    for attempt in (lambda: se.Ledger("L"), CHANGES[0]):
        with pytest.raises(OutputError, match=r"has lost .*refs.* from a copy"):
            attempt()
    refs.rename("L/snapshots/refs")
    assert all(path.read_bytes() == content for path, content in before.items())
    assert se.Ledger("L").verify() == []


@pytest.mark.usefixtures("folder")
def test_a_flipped_bit_in_the_data_is_found() -> None:
    rows = bytearray(Path("b.npy").read_bytes())
    rows[-100] ^= 4
    Path("b.npy").write_bytes(rows)
    assert [line for line in se.Ledger("L").verify() if "'b'" in line and "has changed" in line]


@pytest.mark.usefixtures("folder")
def test_a_wrong_count_is_found() -> None:
    """As a fault of the program or of memory would write it: with a right checksum."""
    from dataclasses import replace

    from support.ledger import LedgerStore

    store = LedgerStore("L")
    store.open()
    change = store.change()
    state = change.state()
    closer = state.statistics.closer.copy()
    closer[7] += 1
    change.save(replace(state, statistics=replace(state.statistics, closer=closer)))
    found = se.Ledger("L").verify()
    assert any(line.startswith("closer: 1 of") and "at (7,)" in line for line in found)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("fault", ["swapped", "lost chunk", "lost array", "zeros"])
def test_an_array_that_is_not_what_was_written_is_found(fault: str) -> None:
    """As damaged manifests and snapshots would have it: with right checksums of all chunks."""
    from support.ledger import LedgerStore

    store = LedgerStore("L")
    store.open()
    session = store.writable()
    root: Any = zarr.open_group(session.store, mode="a")
    one, other = root["record-1"], root["record-2"]
    if fault == "swapped":
        values = one[...], other[...]
        for name, array in zip(("record-2", "record-1"), values, strict=True):
            root.create_array(name, data=array, overwrite=True)
    elif fault == "lost array":
        del root["record-1"]
    elif fault == "zeros":
        root["gallery/id"][7] = 0
    else:
        asyncio.run(session.store.delete("record-1/c/0"))
    session.commit("damage")
    contents = store.contents()

    def read() -> None:
        contents.gallery()
        contents.read("record-1")

    with pytest.raises(OutputError, match=r"can't be read .*(record-1|gallery/id)"):
        read()
