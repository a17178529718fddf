"""Every block of docs/cluster.md runs, and plans say what it says."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import zarr
from click.testing import CliRunner
from documents import BIN, ROOT, blocks
from servers import bucket, credentials, free_port, put_files
from support.arrays import open_array
from support.cli import main
from waiting import PATIENCE

from streameval import InputError

TEXT = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
BLOCKS = blocks(TEXT)
SHELL = [block for language, block in BLOCKS if language == "bash"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with the files that the examples name."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    for side, count in (("query", 20), ("gallery", 300)):
        ids, cams = rng.integers(0, 8, count), rng.integers(0, 3, count)
        features = rng.standard_normal((count, 8), dtype=np.float32)
        np.save(folder / f"{side}.npy", features)
        np.save(folder / f"{side}_ids.npy", ids)
        np.save(folder / f"{side}_cams.npy", cams)
        rows = "".join(f"{one},{cam}\n" for one, cam in zip(ids, cams, strict=True))
        (folder / f"{side}.csv").write_text("id,cam\n" + rows)
        zarr.create_array(folder / "all.zarr" / side, data=features, chunks=(50, 8))
        zarr.create_array(folder / "all.zarr" / f"{side}_ids", data=ids, chunks=(50,))
    zarr.open_group(folder / "all.zarr", mode="a")
    return folder


@pytest.fixture(scope="module")
def environment(folder: Path) -> Iterator[dict[str, str]]:
    """Run an S3 server with the inputs in it; yield the environment that points to it."""
    from obstore.store import S3Store

    with bucket() as url:
        keys = {
            "access_key_id": "key",
            "secret_access_key": "secret",
            "region": "us-east-1",
            "endpoint": url,
        }
        store = S3Store(
            "bucket", prefix="all.zarr", config=keys, client_options={"allow_http": True}
        )
        put_files(folder / "all.zarr", store)
        yield {
            **os.environ,
            **credentials(url),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        }


def test_languages() -> None:
    assert {language for language, _ in BLOCKS} == {"bash", "python"}
    assert len(SHELL) == 5


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SHELL)))
def test_shell_blocks_run(folder: Path, environment: dict[str, str], number: int) -> None:
    block = SHELL[number].replace("8786", str(free_port()))
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=PATIENCE)
    finally:  # a scheduler and workers go on behind the shell
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, errors) == (0, "")
    assert ("mAP" in out) == ("--dry-run" not in block)
    if "--out" in block:
        assert (folder / "clustered" / "summary.json").is_file()
        assert not (folder / "clustered.progress").exists()


@pytest.mark.slow
def test_python_block_runs(folder: Path, environment: dict[str, str]) -> None:
    (block,) = (block for language, block in BLOCKS if language == "python")
    (folder / "example.py").write_text(block)
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) <= 1


def test_a_plan_for_200_workers_from_shapes() -> None:
    arguments = ["evaluate", "--dry-run", "--workers", "200"]
    arguments += ["--query", "shape:100000x512", "--gallery", "shape:100000000x512"]
    arguments += ["--memory", "4GB", "--rate", "50G"]
    done = CliRunner().invoke(main, [*arguments, "--json"])
    assert done.exit_code == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["workers"] == 200
    assert plan["pairs"] == 10**13
    assert plan["flops"] == 2 * 512 * 10**13
    assert plan["seconds"] == pytest.approx(plan["flops"] / (200 * 50e9))
    assert 200 * 4 <= plan["tasks"] <= 100_000
    gallery = 10**8 * 512 * 4
    assert gallery <= plan["bytes_read"] <= 3 * gallery  # all queries in one block: read once
    assert plan["projected_peak"] <= plan["memory"] == 4 * 10**9
    assert sum(plan["client"].values()) == plan["client_peak"]
    assert plan["client"]["statistics"] >= 8 * 100_000 * 101  # at each threshold, of each query
    assert plan["client"]["tasks"] >= 500 * plan["tasks"]
    text = CliRunner().invoke(main, arguments).stdout
    assert re.search(r"Client +\S+ GB projected peak of this process", text)
    for part in ("10 trillion pairs", "200 workers of 1 thread", "17 min", "as is assumed"):
        assert part in text
    refused = CliRunner().invoke(main, [*arguments[:-3], "500MB"])
    assert refused.exit_code == 2
    assert "500.0 MB for each worker is too small for 100000 queries" in refused.stderr


def test_shapes_are_for_plans_alone() -> None:
    array = open_array("shape:5x3:float16")
    assert (array.shape, array.dtype) == ((5, 3), np.dtype("f2"))
    with pytest.raises(InputError, match="a shape without data, for --dry-run alone"):
        array.read((0, 1))
    for bad in ("shape:5", "shape:5x3:int8", "shape:axb"):
        with pytest.raises(InputError, match="expected shape:ROWSxCOLUMNS"):
            open_array(bad)
