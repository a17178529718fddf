"""Blocks of code of the README and of the pages in docs/, and the files that they name."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import numpy as np
import zarr
from click.testing import CliRunner
from oracle_benchmarks import write_permutations
from support.cli import main

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
QUERIES, ITEMS, WIDTH = 12, 60, 8
PLAIN = {"#", "cat", "head", "ls", "python", "streameval"}
"""Commands that leave nothing to the line after them but files."""

OTHER = {"|", "&", "&&", "||", ";", "(", ")", "<", "$"}
"""Words of a line that a shell has to run."""


def blocks(text: str) -> list[tuple[str, str]]:
    """Return language and text of each fenced block."""
    return re.findall(r"^```(\w+)\n(.*?)^```", text, re.M | re.S)


def run_shell(block: str, folder: Path) -> str:
    """Run a block of shell in a folder, without a word on stderr; return what it prints."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    check_quiet(block, done.returncode, done.stderr)
    return done.stdout


def run_in_process(block: str, folder: Path) -> str:
    """Do the same without a shell for lines of streameval, if there is no other shell in them."""
    lines = [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]
    if any(line.split()[0] not in PLAIN for line in lines):
        return run_shell(block, folder)
    return "".join(
        run_line(words_of(line), folder)
        if line.startswith("streameval ") and not set(words_of(line)) & OTHER
        else run_shell(line, folder)
        for line in lines
    )


def words_of(line: str) -> list[str]:
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    return list(words)


def run_line(words: list[str], folder: Path) -> str:
    """Run one command; what it prints goes where the line says."""
    streams: dict[str, str | None] = {"1": None, "2": None}
    while len(words) > 2 and words[-2] == ">":
        number = words[-3] if words[-3] in streams else "1"
        streams[number] = words[-1]
        del words[-3 if words[-3] in streams else -2 :]
    with chdir(folder):
        done = CliRunner().invoke(main, words[1:])
        said = {"1": done.stdout, "2": done.stderr}
        for number, file in streams.items():
            if file is not None:
                Path(file).write_text(said[number], encoding="utf-8")
                said[number] = ""
    check_quiet(shlex.join(words), done.exit_code, said["2"])
    return said["1"]


def check_quiet(block: str, status: int, stderr: str) -> None:
    """Check that all went well, without a word but of an index that is trained on few rows.

    And but of how far a command is, which one says that takes half a minute on a busy machine.
    """
    lines = stderr.splitlines()
    said = [line for line in lines if "trained on" not in line and "pairs/s, " not in line]
    assert (status, said) == (0, []), f"{block}\n{stderr}"


def is_set_up(block: str) -> bool:
    """Tell whether a block installs the checkout, or runs scripts of it, which are there.

    test_demo runs one of them, another is running, and CI runs the rest.
    """
    scripts = re.findall(r"^bash (\S+)", block, re.M)
    assert all((ROOT / script).is_file() for script in scripts)
    return bool(scripts) or block.startswith("pip install ")


def check_printed(said: str, printed: str) -> None:
    """Check that a command prints the lines that a page says it does; … is what the page omits."""
    lines = [line.rstrip() for line in printed.splitlines()]
    for line in said.splitlines():
        pattern = ".*".join(re.escape(part) for part in line.rstrip().split("…"))
        assert any(re.fullmatch(pattern, one) for one in lines), f"{line}\n\n{printed}"


def write_example_files(folder: Path) -> None:
    """Write the data files that the examples name."""
    rng = np.random.default_rng(0)
    for side, count in (("query", QUERIES), ("gallery", ITEMS)):
        ids, cams = rng.integers(0, 8, count), rng.integers(0, 3, count)
        np.save(folder / f"{side}.npy", rng.standard_normal((count, WIDTH), dtype=np.float32))
        np.save(folder / f"{side}_ids.npy", ids)
        np.save(folder / f"{side}_cams.npy", cams)
        write_table(folder / f"{side}.csv", ids, cams)
        write_table(folder / f"{side}_clothes.csv", ids, cams, clothes=cams % 2)
    write_lists(folder)
    write_trials(folder)
    stored = zarr.create_array(
        folder / "distances.zarr", shape=(QUERIES, ITEMS), chunks=(5, 16), dtype="f4"
    )
    stored[...] = rng.random((QUERIES, ITEMS), dtype=np.float32)


def write_table(path: Path, ids: np.ndarray, cams: np.ndarray, **more: np.ndarray) -> None:
    """Write a table of labels."""
    rows = zip(ids, cams, *more.values(), strict=True)
    lines = (",".join(map(str, row)) for row in (("id", "cam", *more), *rows))
    path.write_text("\n".join(lines) + "\n")


def write_lists(folder: Path) -> None:
    """Write the positives and the junk of each query by number, from 1."""
    ids, cams = (
        [np.load(folder / f"{side}_{column}.npy") for side in ("query", "gallery")]
        for column in ("ids", "cams")
    )
    same, camera = ids[0][:, None] == ids[1], cams[0][:, None] == cams[1]
    for name, listed in (("gt_index.txt", same & ~camera), ("jk_index.txt", same & camera)):
        lines = [" ".join(map(str, np.flatnonzero(row) + 1)) for row in listed]
        (folder / name).write_text("\n".join(lines) + "\n")
    pairs = [f"{query},{item},{item % 4 / 4}" for query, item in np.argwhere(same)]
    (folder / "overlap.csv").write_text("\n".join(["query,item,value", *pairs]) + "\n")


def write_trials(folder: Path) -> None:
    """Write the rows of two trials, from 1, and labels and drawing orders as SYSU-MM01 has them."""
    rows = 1 + np.flatnonzero(np.load(folder / "gallery_cams.npy") != 1)
    lines = [" ".join(map(str, rows[start::2])) for start in (0, 1)]
    (folder / "drawn.txt").write_text("\n".join(lines) + "\n")
    (folder / "query_rows.txt").write_text("\n".join(map(str, range(1, QUERIES, 2))))
    (folder / "gallery_rows.txt").write_text("0 2 4 6\n1 2 3 4 5\n")
    stored = {}
    for name, count, cams in (("infrared", QUERIES, [3, 6]), ("color", ITEMS, [1, 2, 4, 5])):
        ids, seen = np.arange(count) % 3 + 1, np.repeat(cams, count // len(cams))
        write_table(folder / f"{name}.csv", ids, seen)
        for cam, person in zip(seen.tolist(), ids.tolist(), strict=True):
            images = np.count_nonzero((seen == cam) & (ids == person))
            stored[cam, person] = np.tile(1 + np.arange(images), (10, 1))
    write_permutations(folder / "rand_perm_cam.mat", stored)
