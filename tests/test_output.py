"""Outputs are whole or not there, wherever the process that writes them is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Writes again and again, killed at each operation on files in turn: sys.argv is KIND.
KILLED = """
import json, os, shutil, signal, sys
from pathlib import Path
from streameval.output import NewFile, NewFolder

EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir")
TARGET = Path("place")

def write(content):
    if sys.argv[1] == "file":
        with NewFile(TARGET, overwrite=True) as file:
            file.write_all([content] * 3)
    else:
        def fill(partial):
            for name in "abc":
                (partial / name).write_text(content)
        with NewFolder(TARGET) as folder:
            folder.fill(fill)

def read():
    if not TARGET.exists():
        return None
    files = [TARGET] if TARGET.is_file() else sorted(TARGET.iterdir())
    return "".join(path.read_text() for path in files)

def killed(at, content):
    child = os.fork()
    if child == 0:
        left = [at]
        def count(event, _):
            if event in EVENTS:
                left[0] -= 1
                if left[0] < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(count)
        write(content)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])

kills, seen = 0, set()
for before in (None, "old"):
    at = 0
    while True:
        if before is not None:
            write(before)
        ended = not killed(at, "new")
        seen.add((before, read()))
        write("last")  # an old one that has stepped aside is removed once there is another
        write("last")
        assert read() == "last" * 3
        assert os.listdir(".") == ["place"], os.listdir(".")
        if before is None:
            shutil.rmtree(TARGET) if TARGET.is_dir() else TARGET.unlink()
        if ended:
            break
        at += 1
        kills += 1
print(json.dumps([kills, list(seen)]))
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_nothing_half_is_left_at_any_kill(kind: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, kind],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    kills, seen = json.loads(done.stdout)
    assert kills >= 8
    whole = {(None, None), (None, "new"), ("old", "new"), ("old", "old")}
    if kind == "folder":
        whole.add(("old", None))  # it has stepped aside
    states = {(before, after and after[:3]) for before, after in seen}
    assert {after for _, after in seen} <= {None, "old" * 3, "new" * 3}
    assert states == whole
