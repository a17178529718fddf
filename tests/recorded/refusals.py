"""Record the refusals that occur in the tests, and compare two recordings.

As a pytest plugin, it records the class, the exit status and the message of each refusal, with the
tests in which it occurs. The status is 2 for a message that a command printed before it exited with
that status, and None for an error constructed in Python::

    python -m pytest -p tests.recorded.refusals --refusals new.json --hypothesis-seed=0
    python -m tests.recorded.refusals compare tests/recorded/refusals.json new.json
    python -m tests.recorded.refusals merge all.json some.json more.json

`compare` lists messages that changed, disappeared or appeared, and changes of class and status. It
helps to describe a change and is not a test: messages may change.

Temporary folders, ports and addresses are replaced by placeholders. At most `MOST_OF_A_TEST`
messages of one class and status are kept per test, as some tests draw their inputs at random.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click.testing
import pytest

import streameval as se

REFUSED = 2
MOST_OF_A_TEST = 60
ALIKE = 0.5  # the least similarity of a message and what it has become

_TEMPORARY = re.escape(tempfile.gettempdir())
REPLACED: tuple[tuple[str, str], ...] = (
    (rf"{_TEMPORARY}/pytest-of-[^/\s]+/pytest-\d+(/popen-gw\d+)?/[^/\s:'\",;)]+", "TMP"),
    (rf"{_TEMPORARY}/tmp[a-z0-9_]{{8}}", "TMP"),
    (r"\b(127\.0\.0\.1|localhost|\[::1\]):\d+", r"\1:PORT"),
    (r"\b0x[0-9a-f]{8,}\b", "ADDRESS"),
    (r"\.(partial|old)\.[0-9a-f]{8}\b", r".\1.HEX"),
)


class Refusal(NamedTuple):
    """Public class of the error ("" if unknown), exit status of the command or None, message."""

    kind: str
    status: int | None
    message: str

    def __str__(self) -> str:
        status = "" if self.status is None else f", status {self.status}"
        return f"[{self.kind or 'command'}{status}] {self.message}"

    @property
    def outline(self) -> tuple[str, int | None, str]:
        """Class, status and message with every number replaced by ``#``."""
        return self.kind, self.status, re.sub(r"\d+([.,]\d+)*", "#", self.message)


# The plugin ----------------------------------------------------------------------------------


class Recorder:
    """Collects the refusals of each test, in order of occurrence.

    Parameters
    ----------
    root : Path
        The folder of the repository, replaced by ``REPO`` in messages.
    """

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.test = ""
        self.by_test: dict[str, list[Refusal]] = {}

    def begin(self, test: str) -> None:
        self.test = test
        self.by_test.setdefault(test, [])

    def add(self, kind: str, status: int | None, message: str) -> None:
        refusal = Refusal(kind, status, self.normal(message))
        refusals = self.by_test.setdefault(self.test, [])
        if refusal not in refusals:
            alike = sum(other.kind == kind and other.status == status for other in refusals)
            if alike < MOST_OF_A_TEST:
                refusals.append(refusal)

    def add_printed(self, stderr: str) -> None:
        """Add the error message of a command that exited with status 2."""
        raised = {
            " ".join(refusal.message.split("\n")): refusal
            for refusal in self.by_test.get(self.test, [])
            if refusal.status is None
        }
        for line in stderr.splitlines():
            label, _, message = line.partition("error: ")
            if label or not message:
                continue
            refusal = raised.get(self.normal(message))
            self.add(refusal.kind if refusal else "", REFUSED, message)

    def normal(self, message: str) -> str:
        """Return a message with placeholders for parts that differ between runs."""
        message = message.replace(self.root, "REPO")
        for pattern, name in REPLACED:
            message = re.sub(pattern, name, message)
        return message


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--refusals", help="file to record refusals in")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--refusals"):
        config.pluginmanager.register(Plugin(config), "refusals")


class Plugin:
    """Records errors and commands; with pytest-xdist, collects the records of all workers."""

    def __init__(self, config: pytest.Config) -> None:
        self.recorder = Recorder(config.rootpath)
        self.by_test = self.recorder.by_test
        self.file = Path(config.getoption("--refusals"))
        self.worker = getattr(config, "workeroutput", None)
        watch_errors(self.recorder)
        watch_commands(self.recorder)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.recorder.begin(item.nodeid.partition("[")[0])
        return (yield)

    def pytest_sessionfinish(self) -> None:
        if self.worker is not None:
            self.worker["refusals"] = {
                test: [list(refusal) for refusal in refusals]
                for test, refusals in self.by_test.items()
            }

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for test, refusals in getattr(node, "workeroutput", {}).get("refusals", {}).items():
            known = self.by_test.setdefault(test, [])
            known.extend(new for new in map(Refusal._make, refusals) if new not in known)

    def pytest_unconfigure(self) -> None:
        if self.worker is None:
            save(self.file, self.by_test)


def watch_errors(recorder: Recorder) -> None:
    """Add every `StreamevalError` that is constructed to a recorder."""

    def construct(self: se.StreamevalError, *arguments: object) -> None:
        super(se.StreamevalError, self).__init__(*arguments)
        public = next(base for base in type(self).__mro__ if base.__name__ in se.__all__)
        recorder.add(public.__name__, None, str(self))

    se.StreamevalError.__init__ = construct  # type: ignore[method-assign, assignment]


def watch_commands(recorder: Recorder) -> None:
    """Add the messages of commands that exit with status 2, in this process or a subprocess."""
    invoke, run = click.testing.CliRunner.invoke, subprocess.run

    @wraps(invoke)
    def watched_invoke(*arguments: Any, **options: Any) -> click.testing.Result:
        result = invoke(*arguments, **options)
        if result.exit_code == REFUSED:
            recorder.add_printed(result.stderr)
        return result

    @wraps(run)
    def watched_run(*arguments: Any, **options: Any) -> subprocess.CompletedProcess[Any]:
        done = run(*arguments, **options)
        if done.returncode == REFUSED and done.stderr:
            stderr = done.stderr
            recorder.add_printed(stderr if isinstance(stderr, str) else stderr.decode())
        return done

    click.testing.CliRunner.invoke = watched_invoke  # type: ignore[method-assign]
    subprocess.run = watched_run


# The file ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recording:
    """The refusals of a run of the tests.

    Attributes
    ----------
    tests : list of str
        All tests that ran, without parameters.
    refusals : dict of Refusal to list of str
        The tests in which each occurs.
    """

    tests: list[str]
    refusals: dict[Refusal, list[str]]


def save(path: Path, by_test: dict[str, list[Refusal]]) -> None:
    """Write the refusals, one a line, with the indices of the tests in which they occur."""
    tests = sorted(test for test in by_test if test)
    occurrences: dict[Refusal, list[int]] = {}
    for number, test in enumerate(tests):
        for refusal in by_test[test]:
            occurrences.setdefault(refusal, []).append(number)
    lines = [
        json.dumps([*refusal, numbers], separators=(",", ":"), ensure_ascii=False)
        for refusal, numbers in occurrences.items()
    ]
    names = [json.dumps(test) for test in tests]
    parts = (
        f'"{name}": [\n' + ",\n".join(rows) + "\n]"
        for name, rows in (("tests", names), ("refusals", lines))
    )
    path.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


def load(path: Path) -> Recording:
    """Read a file that `save` wrote."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    tests = stored["tests"]
    refusals = {
        Refusal(kind, status, message): [tests[number] for number in numbers]
        for kind, status, message, numbers in stored["refusals"]
    }
    return Recording(tests, refusals)


# The comparison ------------------------------------------------------------------------------


class Change(NamedTuple):
    """A refusal that changed, or that is in one recording only."""

    what: str
    old: Refusal | None
    new: Refusal | None
    test: str


def changes(old: Recording, new: Recording) -> Iterator[Change]:
    """Yield the differences between two recordings."""
    lost = [refusal for refusal in old.refusals if refusal not in new.refusals]
    added = [refusal for refusal in new.refusals if refusal not in old.refusals]
    for what, same in (
        ("class", lambda one, other: one[1:] == other[1:]),
        ("status", lambda one, other: one.message == other.message),
    ):
        yield from _paired(what, lost, added, same, old)
    yield from _other_numbers(lost, added, old, new)
    for refusal in list(lost):
        tests = set(old.refusals[refusal])
        likeness = [
            (_likeness(refusal, other) + 0.2 * bool(tests & set(new.refusals[other])), other)
            for other in added
        ]
        best, other = max(likeness, key=lambda pair: pair[0], default=(0.0, refusal))
        if best >= ALIKE:
            lost.remove(refusal)
            added.remove(other)
            what = "message" if other.kind == refusal.kind else "class and message"
            yield Change(what, refusal, other, min(tests))
    ran = set(new.tests)
    for refusal in lost:
        test = old.refusals[refusal][0]
        yield Change("gone" if test in ran else "gone with its test", refusal, None, test)
    for refusal in added:
        yield Change("new", None, refusal, new.refusals[refusal][0])


def _paired(
    what: str,
    lost: list[Refusal],
    added: list[Refusal],
    same: Callable[[Refusal, Refusal], bool],
    old: Recording,
) -> Iterator[Change]:
    """Remove and yield pairs of a lost and an added refusal that are equal in some respect."""
    for refusal in list(lost):
        other = next((other for other in added if same(refusal, other)), None)
        if other is not None:
            lost.remove(refusal)
            added.remove(other)
            yield Change(what, refusal, other, old.refusals[refusal][0])


def _other_numbers(
    lost: list[Refusal], added: list[Refusal], old: Recording, new: Recording
) -> Iterator[Change]:
    """Remove and yield refusals whose outline is in both recordings: only numbers differ."""
    known = {refusal.outline: refusal for refusal in old.refusals}
    present = {refusal.outline: refusal for refusal in new.refusals}
    for refusal in list(lost):
        if refusal.outline in present:
            lost.remove(refusal)
            yield Change("numbers", refusal, present[refusal.outline], old.refusals[refusal][0])
    for refusal in list(added):
        if refusal.outline in known:
            added.remove(refusal)
            yield Change("numbers", known[refusal.outline], refusal, new.refusals[refusal][0])


def _likeness(one: Refusal, other: Refusal) -> float:
    if one.status != other.status:
        return 0.0
    matcher = SequenceMatcher(None, one.message, other.message, autojunk=False)
    quick = matcher.real_quick_ratio() >= ALIKE - 0.2 and matcher.quick_ratio() >= ALIKE - 0.2
    return matcher.ratio() if quick else 0.0


def report(found: Iterable[Change], *, numbers: bool) -> Iterator[str]:
    """Yield the lines of `compare`; `numbers` adds messages that differ in numbers only."""
    listed = list(found)
    for what, count in Counter(change.what for change in listed).items():
        yield f"{count} {what}"
    for change in sorted(listed, key=lambda change: change.what):
        if change.what == "numbers" and not numbers:
            continue
        yield f"\n{change.what}: {change.test}"
        if change.old is not None:
            yield f"  - {change.old}"
        if change.new is not None:
            yield f"  + {change.new}"


def merged(recordings: Iterable[Recording]) -> dict[str, list[Refusal]]:
    """Return the refusals of each test in any of some recordings."""
    by_test: dict[str, list[Refusal]] = {}
    for recording in recordings:
        for test in recording.tests:
            by_test.setdefault(test, [])
        for refusal, tests in recording.refusals.items():
            for test in tests:
                if refusal not in by_test[test]:
                    by_test[test].append(refusal)
    return by_test


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare or merge recordings of refusals.")
    commands = parser.add_subparsers(dest="command", required=True)
    compare = commands.add_parser("compare", help="list differences")
    compare.add_argument("old", type=Path)
    compare.add_argument("new", type=Path)
    compare.add_argument("--numbers", action="store_true", help="list changes of numbers, too")
    merge = commands.add_parser("merge", help="merge recordings of several runs")
    merge.add_argument("out", type=Path)
    merge.add_argument("recordings", type=Path, nargs="+")
    arguments = parser.parse_args()
    if arguments.command == "merge":
        save(arguments.out, merged(map(load, arguments.recordings)))
        return
    differences = changes(load(arguments.old), load(arguments.new))
    for line in report(differences, numbers=arguments.numbers):
        print(line)  # noqa: T201


if __name__ == "__main__":
    main()
