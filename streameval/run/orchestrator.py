"""The orchestrator: a request carried out in a session."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from streameval.errors import BadRowError
from streameval.planning.range import NotUnitError
from streameval.request import Request
from streameval.result.evaluation import Evaluation
from streameval.run.preparation import Prepared, prepare
from streameval.run.provenance import describe_run, manifest
from streameval.run.session import Session


def run(request: Request, session: Session) -> Evaluation:
    """Evaluate what is asked for."""
    prepared = prepare(request, session)
    plan = session.record.start(partial(manifest, prepared), prepared.plan, prepared.with_cut)
    return carry_out(replace(prepared, plan=plan), session)


def carry_out(prepared: Prepared, session: Session) -> Evaluation:
    """Evaluate what is prepared."""
    started, begin = datetime.now(UTC), time.perf_counter()
    source, request = prepared.source, prepared.request
    try:
        try:
            counted = source.count(prepared, session)
        except NotUnitError:  # the range must come from the data after all
            prepared = prepared.with_range_from_data()
            session.record.begin("range from data")
            session = replace(session)  # with a watch that is not cancelled
            counted = source.count(prepared, session)
    except BadRowError as error:  # a pass may meet a later one first
        source.first_bad_row(error.row)
        raise
    seconds = time.perf_counter() - begin
    result = Evaluation.compute(
        counted.statistics,
        request.options,
        range=prepared.range_summary(counted.range),
        # Copies: whoever holds the labels may write to them later.
        columns={name: values.copy() for name, values in prepared.columns.items()},
        provenance=describe_run(prepared, started, seconds)
        | {"read": session.guard(source).digests()}
        | dict(counted.facts),
        positive_cams=prepared.cams if "positive_item" in counted.statistics.held else None,
        lists=counted.reading,
    )
    return result if request.group_by is None else result.grouped(request.group_by)
