"""The record of finished work on disk, from which a run that was killed goes on.

A folder with an icechunk repository: transactional Zarr. Every few seconds what has come of
the finished tasks is committed, together with which tasks these are; so that whenever the
process is killed, the record is that of one moment. Only the client writes, and holds a lock.

    lock               held by the process that writes
    record/            the repository; at the root a manifest, of what is evaluated, as JSON
      VARIANT/STAGE/   done [n] bool, and a group of arrays for each name of the stage's state
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from streameval.errors import OptionError, OutputError, TaskError
from streameval.planning import Plan, Task, format_bytes
from streameval.run.record import Arrays, Record, Stage

COMMIT_SECONDS = 5.0  # between commits, and before the first
SWEEP_EVERY = 20  # commits, after which what earlier ones held is deleted
MESSAGE = 200  # characters of an error's message that are told: icechunk tells where, at length
BRANCH = "main"

Manifest = Mapping[str, Mapping[str, Any]]


class Checkpoint(Record):
    """A record in a folder: a context, which nothing is written to before it is due.

    Parameters
    ----------
    folder : Path
    resume : bool
        Whether to go on with what is there; otherwise nothing may be there.

    Raises
    ------
    OutputError
        If there is a record that is not to be resumed, another process writes to it, or it
        can't be read.
    """

    def __init__(self, folder: Path, *, resume: bool) -> None:
        self._folder = folder
        self._repository: Any = None
        self._lock: Any = None
        self._kept: dict[str, Any] = {}
        self._manifest: Manifest = {}
        self._tasks = np.empty((0, 4), np.int64)
        self._variant = ""
        self._cut: dict[str, Any] = {}
        self._changed: dict[tuple[str, str], _KeptStage] = {}
        self._commits = 0
        self._committed = time.monotonic()
        if folder.exists():
            if not resume:
                raise OutputError(
                    f"{folder} holds the unfinished work of an earlier run: go on with it "
                    "(--resume), or remove it"
                )
            self._open()

    def start(self, manifest: Manifest, plan: Plan) -> Plan:
        """Note what is evaluated; return the plan to go on with: that of the record.

        Parameters
        ----------
        manifest : mapping of str to mapping of str to JSON values
            "inputs", "options" and "plan".
        plan : Plan

        Raises
        ------
        OutputError
            If the record is of another evaluation; says how it differs. If its plan needs more
            memory than there is, or is for fewer threads.
        """
        self._manifest = manifest
        self._variant = "planned"
        cut: dict[str, Any] = {"layout": plan.layout, "block": plan.block, "tile": list(plan.tile)}
        cut |= {"parts": dict(plan.parts), "threads": plan.threads}
        self._tasks = np.array([(*t.queries, *t.gallery) for t in plan.tasks], np.int64)
        if self._kept:
            self._compare(self._kept["manifest"], manifest)
            cut, self._tasks = self._kept["cut"], self._kept["tasks"]
            plan = _with_cut(plan, cut, self._tasks, self._folder)
        self._cut = cut
        return plan

    def begin(self, variant: str) -> None:
        """Keep the stages that follow apart from those before."""
        self._variant = variant

    def stage(self, name: str, tasks: int) -> Stage:
        """Begin a stage, or go on with it."""
        where = f"{self._variant}/{name}"
        stage = _KeptStage(self, where, tasks)
        found = self._kept.get("stages", {}).pop(where, None)
        if found is not None:
            stage.done, stage.state = found
            if len(stage.done) != tasks:
                raise OutputError(
                    f"{self._folder} is damaged: {where} has {len(stage.done)} tasks in it, and "
                    f"there are {tasks}; remove it"
                )
        return stage

    def note(self, stage: _KeptStage, name: str) -> None:
        """Note that a name of a stage has changed; commit where that is due."""
        self._changed[stage.where, name] = stage
        if time.monotonic() - self._committed >= COMMIT_SECONDS:
            self.commit()

    def commit(self) -> None:
        """Write what has changed, at once and as a whole.

        Raises
        ------
        OutputError
            If it can't be written.
        """
        import zarr

        if not self._changed:
            return
        try:
            if self._repository is None:
                self._create()
            session = self._repository.writable_session(BRANCH)
            root = zarr.open_group(session.store, mode="a")
            if not self._commits and "manifest" not in root.attrs:
                root.attrs["manifest"] = json.dumps(self._manifest)
                root.attrs["cut"] = json.dumps(self._cut)
                _write(root, "tasks", self._tasks)
            for (where, name), stage in self._changed.items():
                group = root.require_group(where)
                _write(group, "done", stage.done)
                kept = group.require_group(f"state/{name}")
                for key, values in stage.state[name].items():
                    _write(kept, key, values)
            session.commit(f"{int(sum(s.done.sum() for s in self._changed.values()))} tasks")
            self._commits += 1
            if self._commits % SWEEP_EVERY == 0:
                now = datetime.now(UTC)
                self._repository.expire_snapshots(older_than=now)
                self._repository.garbage_collect(now)
        except (MemoryError, OutputError):
            raise
        except Exception as error:  # icechunk's own, zarr's, the file system's
            raise OutputError(
                f"finished work can't be kept in {self._folder} ({in_a_line(error)}): "
                "make room, or choose another folder"
            ) from error
        self._changed.clear()
        self._committed = time.monotonic()

    @property
    def begun(self) -> bool:
        """Whether anything has been written, by this run or before."""
        return self._repository is not None

    def remove(self) -> None:
        """Remove the record: the result is written."""
        self._changed.clear()
        if self._folder.exists():
            shutil.rmtree(self._folder, ignore_errors=True)
        self._release()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if isinstance(error, TaskError) or (error is not None and self.begun):
                self.commit()
        finally:
            self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _create(self) -> None:
        import icechunk

        if self._folder.exists():
            raise OutputError(f"{self._folder} was made by another process: choose another folder")
        self._folder.mkdir(parents=True)
        self._lock = _locked(self._folder)
        self._repository = icechunk.Repository.create(self._storage())

    def _open(self) -> None:
        """Open the record and read all of it: it is no larger than the result."""
        import icechunk
        import zarr

        self._lock = _locked(self._folder)
        try:
            if not any((self._folder / "record" / "refs").rglob("ref.json")):
                shutil.rmtree(self._folder / "record", ignore_errors=True)  # killed in making it
                self._repository = icechunk.Repository.create(self._storage())
            self._repository = icechunk.Repository.open(self._storage())
            last = next(iter(self._repository.ancestry(branch=BRANCH)))
            if last.parent_id is not None:  # else there has been no commit
                store = self._repository.readonly_session(BRANCH).store
                self._kept = _read(zarr.open_group(store, mode="r"))
        except Exception as error:
            self._release()
            raise OutputError(
                f"{self._folder} can't be read ({in_a_line(error)}): remove it, and begin again"
            ) from error

    def _storage(self) -> Any:
        import icechunk

        icechunk.set_logs_filter("error")  # that commits must not be concurrent: there is a lock
        return icechunk.local_filesystem_storage(str(self._folder / "record"))

    def _compare(self, kept: Manifest, manifest: Manifest) -> None:
        for section in manifest:
            for name in sorted({*kept[section], *manifest[section]}):
                was, now = (one[section].get(name) for one in (kept, manifest))
                if was != now:
                    if isinstance(was, dict) and isinstance(now, dict):
                        keys = [key for key in {**was, **now} if was.get(key) != now.get(key)]
                        was, now = ({key: one.get(key) for key in keys} for one in (was, now))
                    what = (
                        "their content has changed"
                        if section == "inputs"
                        else f"it was {was!r}, and is {now!r}"
                    )
                    raise OutputError(
                        f"{self._folder} is of another evaluation; {section} differ, {name}: "
                        f"{what}. Resume with what it was, or remove the folder"
                    )


class _KeptStage(Stage):
    """A stage whose tasks are kept.

    Attributes
    ----------
    where : str
        Its place in the record.
    """

    def __init__(self, checkpoint: Checkpoint, where: str, tasks: int) -> None:
        super().__init__(tasks)
        self._checkpoint = checkpoint
        self.where = where

    def keep(self, indices: Sequence[int], name: str, arrays: Arrays) -> None:
        super().keep(indices, name, arrays)
        self.state[name] = arrays
        self._checkpoint.note(self, name)


def _locked(folder: Path) -> Any:
    """Return the lock of a record, held.

    Raises
    ------
    OutputError
        If another process holds it.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise OutputError(
            f"another process writes to {folder}: wait for it, or choose another folder"
        ) from error
    return lock


def discard(folder: Path) -> None:
    """Remove a record that is not to be resumed, if there is one.

    Raises
    ------
    OutputError
        If another process writes to it.
    """
    if (folder / "lock").exists():
        lock = _locked(folder)
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()


def check_packages(what: str = "keeping finished work") -> None:
    """Check that what keeps finished work is installed.

    Parameters
    ----------
    what : str
        What needs it, for the message.

    Raises
    ------
    OptionError
    """
    from importlib.util import find_spec

    for package in ("icechunk", "filelock"):
        if find_spec(package) is None:
            raise OptionError(
                f"{what} needs the package {package}: pip install 'streameval[checkpoint]'"
            )


def _with_cut(plan: Plan, cut: Mapping[str, Any], tasks: np.ndarray, folder: Path) -> Plan:
    """Return the plan with the cut of a record.

    Raises
    ------
    OutputError
        If it needs more memory than there is, or is for fewer threads.
    """
    if plan.threads > cut["threads"]:
        raise OutputError(
            f"the plan in {folder} is for {cut['threads']} threads of each worker, and there are "
            f"{plan.threads}: start workers of no more, or remove the folder"
        )
    peak = sum(cut["parts"].values())
    if peak > plan.memory:
        raise OutputError(
            f"the plan in {folder} needs {format_bytes(peak)}, and the budget is "
            f"{format_bytes(plan.memory)}: raise --memory, or remove the folder"
        )
    return replace(
        plan,
        layout=cut["layout"],
        block=cut["block"],
        tile=(cut["tile"][0], cut["tile"][1]),
        parts=cut["parts"],
        tasks=tuple(Task((q, r), (g, h)) for q, r, g, h in tasks.tolist()),
    )


def in_a_line(error: Exception) -> str:
    """Return an error as one line of a message."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) < MESSAGE else text[:MESSAGE] + ' ...'}"


def _write(group: Any, name: str, values: np.ndarray) -> None:
    chunks = tuple(max(size, 1) for size in values.shape) or "auto"
    array = group.create_array(
        name,
        shape=values.shape,
        dtype=values.dtype,
        chunks=chunks,
        overwrite=True,
        config={"write_empty_chunks": True},
    )
    if values.size:
        array[...] = values


def _read(root: Any) -> dict[str, Any]:
    """Return all that a record holds; nothing of one without a commit."""
    import zarr

    if "manifest" not in root.attrs:
        return {}
    stages: dict[str, Any] = {}
    for variant, group in root.groups():
        for name, stage in group.groups():
            state = {
                key: {one: np.asarray(array[...]) for one, array in kept.arrays()}
                for key, kept in stage["state"].groups()
            }
            done = stage["done"]
            if not isinstance(done, zarr.Array):
                raise OutputError(f"{variant}/{name}/done is no array")
            stages[f"{variant}/{name}"] = np.asarray(done[...]), state
    return {
        "manifest": json.loads(root.attrs["manifest"]),
        "cut": json.loads(root.attrs["cut"]),
        "tasks": np.asarray(root["tasks"][...]),
        "stages": stages,
    }
