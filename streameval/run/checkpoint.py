"""The record of finished work on disk, from which a run that was killed goes on.

A transactional store. Every few seconds what the finished tasks have counted is committed,
together with which tasks these are: whenever the process is killed, the record is that of one
moment. Only the client writes, and claims the folder from the beginning of the run.

    evaluation             what is evaluated and how it is cut into tasks, as JSON
    VARIANT/STAGE/NAME     the arrays of each name of the stage's state
    VARIANT/STAGE/done     [n] bool: the finished tasks
    VARIANT/STAGE/read     digests of what they have read, and what its files were known by

A stage is known by its name and by a digest of its tasks, so that none goes on with others.
Another budget, other threads or workers go on with the cut of the record, where it fits. Where it
does not, the work is cut anew: a stage whose tasks are the same goes on, others begin again.

Beside the store lie files that a stage keeps: an index that was built.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streameval.arrays.witness import Readings
from streameval.errors import OutputError, TaskError, warn
from streameval.interruption import at_end, held
from streameval.output import claimed, folders_above, hidden_path, remove
from streameval.planning.plan import Cut, Plan, Task, plural
from streameval.run.record import PLACES, Item, Manifest, Record, Stage, digest
from streameval.run.share import Several
from streameval.statistics import RankStatistics
from streameval.store import Arrays, Store, View
from streameval.typing import AnyArray, FloatArray, JsonObject

FORMAT = 9  # of what is written; no other one is read
COMMIT_SECONDS = 5.0  # between commits, and before the first
SWEEP_EVERY = 20  # commits, after which what earlier ones held is deleted
EVALUATION, DONE, READ, FILES = "evaluation", "done", "read", "files"


class _WorkStore(Store):
    inside = "record"
    read = "{place} can't be read ({error}): remove it, and begin again"
    written = "finished work can't be kept in {place} ({error})"


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
        If there is a record that is not to be resumed or of another format, another process
        writes to it, or it can't be read.
    """

    def __init__(self, folder: Path, *, resume: bool) -> None:
        self._folder = folder
        self._store = _WorkStore(folder)
        self._evaluation: JsonObject = {}
        self._anew = False  # whether the work is cut otherwise than the record says
        self._stages: dict[str, Stage] = {}
        self._states: dict[str, list[str]] = {}  # that are read when their stage begins
        self._begun: list[Stage] = []
        self._variant = ""
        self._changed: dict[tuple[str, str], Stage] = {}
        self._commits = 0
        self._failures = 0  # since the last commit
        self._holds_work = False  # whether there has been a commit, of this run or before
        self._committed = time.monotonic()
        with ExitStack() as claim:
            with self._store.guard("written"):
                claim.enter_context(folders_above(folder.absolute()))
                claim.enter_context(claimed(folder.absolute()))
            if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
                if not resume:
                    raise OutputError(
                        f"{folder} holds the unfinished work of an earlier run: go on with it "
                        "(--resume), or remove it"
                    )
                self._open()
            self._claim = claim.pop_all()

    def start(
        self, describe: Callable[[], Manifest], plan: Plan, with_cut: Callable[[Cut], Plan]
    ) -> Plan:
        """Record what is evaluated, and return its plan: with the cut of the record if that fits.

        See `Record.start`.
        """
        manifest = describe()
        self._variant = "planned"
        if self._evaluation:
            _compare(self._evaluation["manifest"], manifest, self._folder)
            cut = _cut_of(self._evaluation)
            plan = with_cut(cut)
            self._anew = plan.cut != cut
        self._evaluation = {"format": FORMAT, "manifest": manifest, **_as_json(plan.cut)}
        return plan

    @property
    def recorded(self) -> Manifest:
        """What the record is of; empty where nothing is recorded."""
        recorded: Manifest = self._evaluation.get("manifest", {})
        return recorded

    def begin(self, variant: str) -> None:
        """Keep the stages that follow apart from those before."""
        self._variant = variant

    def stage(self, name: str, tasks: Sequence[Item]) -> Stage:
        """Begin a stage, or resume it; warn of finished tasks that are done again."""
        stages = f"{self._variant}/{name} "
        where = stages + digest(tasks)
        stage = self._stages.pop(where, None)
        if stage is None:
            for other in (one for key, one in self._stages.items() if key.startswith(stages)):
                warn(
                    f"the plan in {self._folder} does not fit the memory and threads of this run: "
                    f"{name} begins again, in {plural(len(tasks), 'task')}; of the plan's "
                    f"{plural(len(other.done), 'task')}, {np.count_nonzero(other.done):,} were "
                    "finished"
                )
            stage = Stage(len(tasks), partial(self._mark, where))
        elif len(stage.done) != len(tasks):
            raise OutputError(
                f"{self._folder} is damaged: {where} has {len(stage.done)} tasks in it, and "
                f"there are {len(tasks)}; remove it"
            )
        for path in self._states.pop(where, ()):
            with self._store.guard("read"):
                view = View(self._store, self._store.readable())
                stage.state[path.rpartition("/")[2]] = _counted_of(view.read(path))
        self._begun.append(stage)
        return stage

    def release(self) -> None:
        """Keep the stages that there were, and let go of what they have counted."""
        self.commit()
        self._changed.clear()  # what can't be kept is lost
        for stage in self._begun:
            stage.state.clear()
        self._begun.clear()

    def file(self, name: str) -> Path:
        """Return where a file of a stage is kept, in the folder of the record."""
        return self._folder / name

    def keep(self, *made: Path) -> Path:
        """Keep files that are finished in the folder of the record; return where the last is."""
        kept = [self.file(one.name) for one in made]
        partial = [hidden_path(one, "partial") for one in kept]
        try:
            with self._store.guard("written"):
                self._begin()
                for one, other in zip(made, partial, strict=True):
                    shutil.copyfile(one, other)
                for one, other in zip(partial, kept, strict=True):
                    one.replace(other)
        except OutputError as error:
            for one in partial:
                remove(one)
            self._go_on_without(error)
            return made[-1]
        for one in made:
            remove(one)
        return kept[-1]

    def _mark(self, where: str, stage: Stage, name: str) -> None:
        """Mark a name of a stage as changed; commit where that is due."""
        self._changed[where, name] = stage
        if time.monotonic() - self._committed >= COMMIT_SECONDS * 2**self._failures:
            self.commit()

    def commit(self) -> None:
        """Write what has changed, at once and as a whole; warn where that can't be."""
        if not self._changed:
            return
        try:
            self._write()
        except OutputError as error:
            self._go_on_without(error)
        else:
            self._changed.clear()
            self._failures = 0
        self._committed = time.monotonic()

    def _write(self) -> None:
        """Commit what has changed."""
        self._begin()
        with self._store.guard("written"):
            change = View(self._store, self._store.writable())
            for (where, name), stage in self._changed.items():
                change.write(f"{where}/{name}", _arrays_of(stage.state[name]))
            if self._anew:
                self._write_evaluation(change)
            stages = {where: stage for (where, _), stage in self._changed.items()}
            for where, stage in stages.items():
                files = np.frombuffer(stage.files.encode(), np.uint8)
                change.write(f"{where}/{READ}", {**stage.readings.arrays(), FILES: files})
                change.write(f"{where}/{DONE}", {DONE: stage.done})
            done = sum(np.count_nonzero(stage.done) for stage in stages.values())
            change.commit(f"{done} tasks")
            self._anew = False
            self._commits += 1
            if self._commits % SWEEP_EVERY == 0:
                self._store.expire()

    def _go_on_without(self, error: OutputError) -> None:
        """Warn, once in a row, and remove what the attempt has left."""
        if not self._failures:
            warn(f"{error}; the run goes on, and tries again now and then")
        self._failures += 1
        with suppress(Exception):  # it may fail for the same reason
            if self._holds_work:
                self._store.expire()
            else:
                self._store = _WorkStore(self._folder)
                remove(self._folder / self._store.inside)  # files that stages keep are in use
                self._folder.rmdir()

    @property
    def begun(self) -> bool:
        """Whether anything has been written, by this run or before."""
        return self._store.is_open

    def remove(self) -> None:
        """Remove the record: the result is written."""
        self._changed.clear()
        with ExitStack() as ends:
            with held():  # from here on, a signal finds nothing that is kept
                self._store = _WorkStore(self._folder)
                ends.enter_context(at_end(lambda: remove(self._folder)))
            remove(self._folder)
        self._claim.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if isinstance(error, TaskError) or (error is not None and self.begun):
                self.commit()
        finally:
            self._claim.close()

    def _begin(self) -> None:
        """Write what is evaluated, where that is not written."""
        with self._store.guard("written"):
            if not self.begun:
                with at_end(lambda: remove(self._folder)):
                    self._folder.mkdir(exist_ok=True)
                    self._store.create()
            if self._store.is_empty:
                change = View(self._store, self._store.writable())
                self._write_evaluation(change)
                change.commit("begun")
                self._holds_work = True

    def _write_evaluation(self, change: View) -> None:
        change.write_bytes(EVALUATION, json.dumps(self._evaluation).encode())

    def _open(self) -> None:
        """Open the record, and read which tasks are finished."""
        with self._store.guard("read"):
            if self._store.exists():
                self._store.open()
            else:  # killed while it was made
                self._store.create()
            if not self._store.is_empty:
                self._read(View(self._store, self._store.readable()))
                self._holds_work = True

    def _read(self, view: View) -> None:
        known = EVALUATION in view.root
        evaluation = json.loads(view.read_bytes(EVALUATION).tobytes()) if known else {}
        written = evaluation.get("format", 1)
        if written != FORMAT:
            raise OutputError(
                f"the unfinished work in {self._folder} was written by another version of "
                f"streameval, in format {written}, and format {FORMAT} is expected: "
                "go on with it with that version, or remove it, and begin again"
            )
        if not view.digested:
            raise self._store.refusal("read", "a file is damaged: there are no digests")
        self._evaluation = evaluation
        for path in view.digests.keys() - {EVALUATION}:
            where, _, name = path.rpartition("/")
            stage = self._stages.setdefault(where, Stage(0, partial(self._mark, where)))
            if name not in (READ, DONE):
                self._states.setdefault(where, []).append(path)
                continue
            kept = view.read(path)
            if name == READ:
                stage.readings, stage.files = Readings.of(kept), kept[FILES].tobytes().decode()
            else:
                stage.done = np.array(kept[DONE])


def _arrays_of(counted: FloatArray | Several) -> Arrays:
    """Return what a stage has counted as the record holds it; an array is alone."""
    if not isinstance(counted, tuple):
        return {"values": counted}
    return {
        f"{number} {name}": array
        for number, one in enumerate(counted)
        for name, array in one.arrays().items()
    }


def _counted_of(arrays: Arrays) -> AnyArray | Several:
    """Return what `_arrays_of` was given, to be changed."""
    each: dict[str, JsonObject] = {}
    for key, array in arrays.items():
        number, _, name = key.rpartition(" ")
        each.setdefault(number, {})[name] = np.array(array)
    if "" in each:
        values: AnyArray = each[""]["values"]
        return values
    return tuple(RankStatistics(**one) for one in each.values())


def discard(folder: Path) -> None:
    """Remove a record, if there is one; raise OutputError if another process writes to it."""
    if (folder / _WorkStore.inside).exists():
        with claimed(folder.absolute()):
            shutil.rmtree(folder, ignore_errors=True)


def _compare(recorded: Manifest, manifest: Manifest, folder: Path) -> None:
    """Raise OutputError where the manifest of a record differs, with what differs."""
    for section in (section for section in manifest if section != PLACES):
        for name in {**manifest[section], **recorded[section]}:
            was, now = recorded[section].get(name), manifest[section].get(name)
            if was == now:
                continue
            if isinstance(was, dict) and isinstance(now, dict):
                keys = [key for key in {**was, **now} if was.get(key) != now.get(key)]
                was, now = ({key: side.get(key) for key in keys} for side in (was, now))
            what = f"it was {was!r}, and is {now!r}"
            if section == "inputs":
                what = f"the content of {manifest[PLACES].get(name, name)} has changed"
            raise OutputError(
                f"{folder} is of another evaluation; {section} differ, {name}: "
                f"{what}. Resume with what it was, or remove the folder"
            )


def _as_json(cut: Cut) -> JsonObject:
    """Return a cut as the record holds it."""
    tasks = [(*task.queries, *task.gallery) for task in cut.tasks]
    return {**cut._asdict(), "tasks": tasks}


def _cut_of(recorded: Mapping[str, Any]) -> Cut:
    """Return the cut of a record."""
    tasks = tuple(Task((q, r), (g, h)) for q, r, g, h in recorded["tasks"])
    rows, items = recorded["tile"]
    tile, in_round = (rows, items), recorded.get("round", 0)
    return Cut(recorded["layout"], tasks, recorded["block"], tile, in_round)
