"""Evaluations taken apart: prepared, planned, carried out with an executor or a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

import streameval as se
from streameval.metrics.selection import with_named
from streameval.planning.plan import Workers
from streameval.request import Request
from streameval.run.executor import Executor, ThreadExecutor
from streameval.run.orchestrator import carry_out
from streameval.run.preparation import Prepared
from streameval.run.preparation import prepare as prepare_request
from streameval.run.provenance import manifest
from streameval.run.record import NO_RECORD, Record
from streameval.run.session import Session, open_session
from streameval.source import Source


def plan_any_budget(patch: pytest.MonkeyPatch) -> None:
    """Plan within any budget, however small, and without what libraries take."""
    patch.setattr("streameval.memory.LEAST", 0)
    patch.setattr("streameval.run.session.library_bytes", lambda: 0)


def session_of(given: dict[str, Any]) -> Session:
    """Return a session that is not to be closed: of threads of this process."""
    with open_session(given) as session:
        return session


def prepare(source: Source, *, workers: Workers | None = None, **asked: Any) -> Prepared:
    """Prepare an evaluation by the keywords of `evaluate`."""
    request = Request.of({**asked, "source": source})
    session = replace(session_of(asked), planned_workers=workers)
    return prepare_request(request, session)


def under(prepared: Prepared, options: se.MetricOptions | None) -> Prepared:
    """Return what is prepared, read under other metric options; None: its own."""
    if options is None:
        return prepared
    if options.cmc == se.MetricOptions().cmc:
        options = replace(options, cmc=prepared.request.protocol.cmc)
    options = with_named(options, [one.name for one in prepared.request.refine])
    return replace(prepared, request=replace(prepared.request, options=options))


def run(
    prepared: Prepared,
    options: se.MetricOptions | None = None,
    progress: se.Progress | None = None,
    *,
    executor: Executor | None = None,
    record: Record = NO_RECORD,
    collect: Callable[[Any], None] | None = None,
) -> se.Evaluation:
    """Carry out what is prepared."""
    plan = prepared.plan
    session = Session(
        plan.memory,
        plan.threads,
        executor or ThreadExecutor(plan.threads),
        progress=progress or se.Progress(),
        record=record,
        collect=collect,
    )
    return carry_out(under(prepared, options), session)


def recorded(prepared: Prepared, options: se.MetricOptions, record: Record) -> Prepared:
    """Return what is prepared with the plan of a record."""
    describe = partial(manifest, [under(prepared, options)])
    return replace(prepared, plan=record.start(describe, prepared.plan, prepared.with_cut))
