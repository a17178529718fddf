"""The command ``streameval audit``."""

from __future__ import annotations

from typing import Any

import click

from streameval.cli import options
from streameval.cli.help import examples
from streameval.cli.inputs import (
    SIDES,
    check_labels,
    check_source,
    open_features,
    open_labels,
    open_protocol,
    parse_junk_ids,
    with_bundle,
)
from streameval.cli.options import check_effect
from streameval.cli.printing import print_answer


@click.command(
    epilog=examples(
        "audit --query query.npy --gallery gallery.npy \\\n"
        "    --query-labels query.csv --gallery-labels gallery.csv",
        "audit pytorch_result.mat --json",
    )
)
@options.bundle
@options.features()
@options.labels()
@options.metric
@options.pairs()
@options.self_match()
@options.memory
@options.json("the audit")
def audit(**given: Any) -> None:
    """Say what in the inputs is likely a mistake, and what it would change.

    Features and labels are given as to evaluate; labels alone will do. Nothing is refused, and
    the exit status is 0 whatever is found.
    """
    from streameval.audit import audit_features, audit_labels
    from streameval.errors import BudgetError
    from streameval.protocols.pairs import find_pairs
    from streameval.protocols.protocol import with_options
    from streameval.report.inputs import render_audit
    from streameval.run.session import parse_bytes

    values = with_bundle(given)
    check_labels(values)
    features = None
    if any(values[side] is not None for side in SIDES):
        check_source(values)
        features = open_features(values)
    remedy = "give features, --query and --gallery"
    check_effect("metric", "memory", when=features is not None, remedy=remedy)
    query, gallery = open_labels(values)
    if features is not None:
        features.check_rows(query, gallery)
    junk = parse_junk_ids(values["junk_ids"], gallery)
    protocol = with_options(
        open_protocol(values["protocol"]) or "market1501",
        junk_ids=junk,
        self_match=values["self_match"],
    )
    pairs = find_pairs(query, gallery, protocol)
    report = audit_labels(query, gallery, protocol, pairs)
    if features is not None:
        import psutil

        budget = parse_bytes(values["memory"])
        held = int(psutil.Process().memory_info().rss) + 40 * features.shape[1]
        if held + (64 << 20) > budget:
            raise BudgetError(
                f"memory is {budget} bytes; the labels, and 40 bytes a gallery row, take {held} "
                "already: raise --memory by 64 MB beyond that at least"
            )
        report += audit_features(features, budget - held, gallery, pairs)
    print_answer(values, report.summary, lambda style: render_audit(report, style))
