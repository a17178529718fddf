"""The orchestrator: a request carried out in a session."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from streameval.errors import BadRowError
from streameval.planning.range import NotUnitError
from streameval.request import Request
from streameval.result.evaluation import Evaluation
from streameval.result.several import Evaluations, gathered
from streameval.run.preparation import Prepared, plan_requests, prepare, with_pairs
from streameval.run.provenance import describe_run, manifest
from streameval.run.session import Session
from streameval.source import Counted
from streameval.typing import JsonObject


def run(request: Request, session: Session) -> Evaluation:
    """Evaluate what is asked for, of one view."""
    prepared = prepare(request, session)
    plan = session.record.start(partial(manifest, [prepared]), prepared.plan, prepared.with_cut)
    return carry_out(replace(prepared, plan=plan), session)


def run_all(requests: Sequence[Request], session: Session) -> Evaluations:
    """Evaluate requests of one source together: each view of each protocol."""
    prepared = [with_pairs(planned) for planned in plan_requests(requests, session)]
    plan = session.record.start(partial(manifest, prepared), prepared[0].plan, prepared[0].with_cut)
    prepared = [replace(one, plan=plan) for one in prepared]
    return by_protocol(prepared, carry_out_all(prepared, session))


def by_protocol(prepared: Sequence[Prepared], results: Sequence[Evaluation]) -> Evaluations:
    """Return results of what was prepared by their protocols."""
    return gathered([one.place for one in prepared], results)


def carry_out(prepared: Prepared, session: Session) -> Evaluation:
    """Evaluate what is prepared."""
    return carry_out_all([prepared], session)[0]


def carry_out_all(prepared: Sequence[Prepared], session: Session) -> list[Evaluation]:
    """Evaluate what is prepared together, in one pass over the data."""
    started, begin = datetime.now(UTC), time.perf_counter()
    source = prepared[0].source
    try:
        try:
            counted = _count(prepared, session)
        except NotUnitError:  # the range must come from the data after all
            prepared = [one.with_range_from_data() for one in prepared]
            session.record.begin("range from data")
            session = replace(session)  # with a watch that is not cancelled
            counted = _count(prepared, session)
    except BadRowError as error:  # a pass may meet a later one first
        source.first_bad_row(error.row)
        raise
    seconds = time.perf_counter() - begin
    read = {"read": session.guard(source).digests()}
    return [
        _evaluation(one, own, describe_run(one, started, seconds) | read, session.threads)
        for one, own in zip(prepared, counted, strict=True)
    ]


def _count(prepared: Sequence[Prepared], session: Session) -> list[Counted]:
    """Count what is prepared, once its source is ready."""
    ready = prepared[0].source.ready(session, prepared[0].limits)
    given = [replace(one, request=one.request.with_source(ready)) for one in prepared]
    return ready.count(given, session)


def _evaluation(
    prepared: Prepared, counted: Counted, provenance: JsonObject, threads: int
) -> Evaluation:
    """Return the result of one evaluation."""
    request = prepared.request
    result = Evaluation.compute(
        counted.statistics,
        request.options,
        range=prepared.range_summary(counted.range),
        # Copies: whoever holds the labels may write to them later.
        columns={name: values.copy() for name, values in prepared.columns.items()},
        provenance=provenance | dict(counted.facts),
        positive_cams=prepared.cams if "positive_item" in counted.statistics.held else None,
        lists=counted.reading,
        threads=threads,
    )
    return result if request.group_by is None else result.grouped(request.group_by)
