"""The command ``streameval audit``."""

from __future__ import annotations

from typing import Any

import click

from streameval.cli import declared
from streameval.cli.effect import check_effect
from streameval.cli.examples import examples
from streameval.cli.options import (
    check_label_options,
    label_options,
    open_features,
    open_labels,
    open_protocol,
    parse_junk_ids,
    with_bundle,
)
from streameval.cli.printing import as_json, print_out


@click.command(
    epilog=examples(
        "audit --query query.npy --gallery gallery.npy \\\n"
        "    --query-labels query.csv --gallery-labels gallery.csv",
        "audit pytorch_result.mat --json",
    ),
)
@click.argument("bundle", metavar="[FILE]", required=False)
@declared.features()
@declared.labels()
@declared.metric
@declared.pairs()
@declared.self_match
@declared.own_memory
@declared.json("the audit")
def audit(**given: Any) -> None:
    """Say what in the inputs is likely a mistake, and what it would change.

    Features and labels are given as to evaluate; labels alone will do. Nothing is refused, and
    the exit status is 0 whatever is found.
    """
    from streameval.audit import audit_features, audit_labels
    from streameval.errors import BudgetError
    from streameval.protocols.pairs import find_pairs
    from streameval.protocols.protocol import with_options
    from streameval.report.audit import render_audit
    from streameval.report.terminal import stdout_style
    from streameval.run.sizes import parse_bytes

    given = with_bundle(given)
    labels = {side: label_options(given, side) for side in ("query", "gallery")}
    for side, own in labels.items():
        check_label_options(side, *own)
    of_features = given["query"] is not None or given["gallery"] is not None
    check_effect(
        "metric", "memory", when=of_features, remedy="give features, --query and --gallery"
    )
    features = None
    if of_features:
        features = open_features(given["query"], given["gallery"], given["metric"])
    query, gallery = open_labels(labels["query"], labels["gallery"], None)
    if features is not None:
        features.check_rows(query, gallery)
    junk = parse_junk_ids(given["junk_id"], gallery)
    protocol = with_options(
        open_protocol(given["protocol"]) or "market1501",
        junk_ids=None if junk is None else tuple(junk),
        self_match=given["self_match"],
    )
    pairs = find_pairs(query, gallery, protocol)
    done = audit_labels(query, gallery, protocol, pairs)
    if features is not None:
        import psutil

        budget = parse_bytes(given["memory"])
        held = int(psutil.Process().memory_info().rss) + 40 * features.shape[1]
        if held + (64 << 20) > budget:
            raise BudgetError(
                f"memory is {budget} bytes; the labels, and 40 bytes a gallery row, take {held} "
                "already: raise --memory by 64 MB beyond that at least"
            )
        done += audit_features(features, budget - held, query, gallery, pairs)
    if given["wants_json"]:
        print_out(as_json(done.summary()))
    else:
        print_out(render_audit(done, stdout_style()))
