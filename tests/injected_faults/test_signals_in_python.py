"""In Python, Ctrl-C ends an evaluation, also where a callback swallows its exception."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from spread import with_daily
from waiting import PATIENCE

COMMON = """
import signal, sys, threading, time
import numpy as np
import streameval as se

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
rng = np.random.default_rng(0)
features = se.Features(rng.standard_normal((20, 8)), rng.standard_normal((90, 8)))
sides = {
    side: se.Labels(id=rng.integers(0, 5, count), cam=rng.integers(0, 3, count))
    for side, count in (("query", 20), ("gallery", 90))
}
progress = se.Progress()
waiting = threading.Event()

def wait_for(event):
    print("ready", flush=True)
    while not event.is_set():
        time.sleep(0.01)

def evaluate(**options):
    return se.evaluate(features, **sides, threads=2, **options)

expected = evaluate()
"""
SWALLOWED = """
def swallow(*given):
    setattr(progress, sys.argv[1], lambda *given: None)
    try:
        wait_for(waiting)
    except BaseException as error:
        print("swallowed", type(error).__name__, flush=True)

setattr(progress, sys.argv[1], swallow)
usual = signal.getsignal(signal.SIGINT)
try:
    evaluate(progress=progress)
except KeyboardInterrupt:
    print("raised again")
assert signal.getsignal(signal.SIGINT) is usual
assert evaluate().statistics.equals(expected.statistics)
print("evaluated")
"""
OWN = """
signal.signal(signal.SIGINT, lambda *given: waiting.set())
progress.begin = lambda *given: wait_for(waiting)
assert evaluate(progress=progress).statistics.equals(expected.statistics)
print("evaluated")
"""
THREAD = """
progress.begin = lambda *given: wait_for(waiting)
found, done = [], threading.Event()

def work():
    found.append(evaluate(progress=progress))
    done.set()

try:
    threading.Thread(target=work).start()
    done.wait()
except KeyboardInterrupt:
    waiting.set()
done.wait()
assert found[0].statistics.equals(expected.statistics)
print("evaluated")
"""


def interrupted(program: str, *arguments: str) -> list[str]:
    """Run a program, send Ctrl-C once it is ready, and return what it prints after that."""
    with subprocess.Popen(
        [sys.executable, "-c", COMMON + program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    ) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            printed, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert (ready, process.returncode, errors) == ("ready\n", 0, "")
    return printed.splitlines()


@pytest.mark.parametrize("method", with_daily(["begin", "start", "finish"], "start"))
def test_a_swallowed_exception_is_raised_again(method: str) -> None:
    printed = interrupted(SWALLOWED, method)
    assert printed == ["swallowed KeyboardInterrupt", "raised again", "evaluated"]


def test_a_handler_of_the_caller_is_left_alone() -> None:
    assert interrupted(OWN) == ["evaluated"]


@pytest.mark.slow
def test_other_threads_do_not_see_it() -> None:
    assert interrupted(THREAD) == ["evaluated"]
