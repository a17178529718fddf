"""What an evaluation is made from: its inputs and their audit, its plan, its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from streameval.audit import Audit
from streameval.display.figures import shortened
from streameval.display.provenance import (
    describe_difference,
    describe_inputs,
    describe_junk,
    describe_range,
    describe_reading,
    describe_threads,
)
from streameval.display.table import Blocks, Cell, Facts, Table, amount, duration, facts, plural
from streameval.planning.plan import Plan, format_bytes
from streameval.protocols.shipped import saved_protocol
from streameval.result import Evaluation, Results
from streameval.run.provenance import describe_source
from streameval.typing import JsonObject

if TYPE_CHECKING:
    from streameval.run.preparation import Planned


COUNTS: Mapping[str, str] = {
    "queries": "Queries",
    "queries_positive": "… in Q+: with a positive",
    "queries_negative": "… in Q−: strangers",
    "queries_excluded": "… excluded: every item of their identity is ignored",
    "gallery": "Gallery items",
    "pairs_positive": "Positive pairs",
    "pairs_ignored": "Ignored pairs",
    "ties": "Ties of a positive and a negative",
}


def audit_blocks(audit: Audit) -> Blocks:
    """Return the facts of an audit, and its findings with what each would change."""
    blocks: Blocks = [facts(_audit_rows(audit.facts))]
    for finding in audit.findings:
        blocks += ["", facts([(finding.severity, str(finding))], wraps=True)]
    return blocks if audit.findings else [*blocks, "", facts([("Findings", "none")])]


def _audit_rows(inputs: JsonObject) -> Facts:
    copies = []
    if "gallery_copies" in inputs:
        copies = [
            f"{plural(inputs['gallery_copies'], 'row')} of the gallery",
            f"{plural(inputs['query_copies'], 'query', 'queries')} in the gallery",
        ]
    queries, gallery, pairs = inputs["queries"], inputs["gallery"], inputs["pairs"]
    images = [
        f"{_identities(count)} with {name}"
        for name, count in gallery["identities_by_images"].items()
        if count
    ]
    of_queries = [
        f"{queries['rows']:,} of {_identities(queries['identities'])}",
        f"{queries['positive']:,} in Q+",
        f"{queries['negative']:,} in Q-",
        f"{queries['excluded']:,} excluded",
    ]
    of_gallery = [
        f"{gallery['rows']:,} of {_identities(gallery['identities'])}",
        f"{gallery['junk']:,} junk",
        f"{gallery['distractors']:,} of identities that no query has",
    ]
    of_pairs = [
        f"{pairs['positive']:,} positive",
        f"{pairs['ignored_of_same_identity']:,} of one identity ignored",
    ]
    closer = inputs.get("same_identity_closer", {}).items()
    return [
        ("Query features", _features(inputs.get("query_features"))),
        ("Gallery features", _features(inputs.get("gallery_features"))),
        ("Copies", copies),
        ("Queries", of_queries),
        ("Gallery", of_gallery),
        ("By images", images or "no identities"),
        ("Pairs", of_pairs),
        ("Cameras", [f"{side} {len(known)}" for side, known in inputs.get("cameras", {}).items()]),
        *(
            ("One identity", f"closer than others in {100 * share:.1f} % of a sample, {name}")
            for name, share in closer
        ),
    ]


def _identities(count: int) -> str:
    return plural(count, "identity", "identities")


def _features(side: JsonObject | None) -> list[str]:
    if side is None:
        return []
    return [
        str(side["uri"]),
        f"{side['rows']:,} x {side['columns']:,} of {side['dtype']}",
        f"{plural(side['not_finite'], 'row')} not finite",
        f"{side['zero']:,} zero",
        "lengths {:.4g} to {:.4g}".format(*side["lengths"]) if side["lengths"] else "",
    ]


def plan_summary(several: Sequence[Planned], rate: float | None = None) -> JsonObject:
    """Return the plan of evaluations in one pass as numbers, for ``--dry-run --json``.

    `rate` is of floating-point operations a second of one thread, where it was measured.
    """
    plan, problem = several[0].plan, several[0].problem
    return {
        "layout": plan.layout,
        "evaluations": len(several),
        "passes": _passes(several),
        "thresholds": problem.thresholds,
        "histogram_edges": problem.edges,
        "tasks": len(plan.tasks),
        "tile": list(plan.tile),
        "block": plan.block,
        "threads": plan.threads,
        "workers": plan.workers,
        "pairs": plan.pairs,
        "bytes_read": plan.bytes_read,
        "flops": plan.flops,
        "multiplied_by": _multiplied_by(several[0]),
        "rounds": len(plan.rounds),
        "memory": plan.memory,
        "projected_peak": plan.peak,
        "parts": dict(plan.parts),
        **({"client_peak": plan.client_peak, "client": dict(plan.client)} if plan.client else {}),
        **({} if rate is None else {"seconds": _seconds_at(rate, plan)}),
    }


def _seconds_at(rate: float, plan: Plan) -> float:
    """Return the seconds that the matrix products take where all threads have such a rate."""
    return plan.flops / (rate * plan.threads * max(plan.workers, 1))


def _multiplied_by(planned: Planned) -> list[str]:
    """Return what multiplies: what comes first, then what does where too many pairs are left."""
    text = planned.source.describe_plan(planned.plan)
    first = [text.sieve] if planned.problem.ranks_alone and text.sieve else []
    return [*first, text.multiplier] if planned.plan.flops else []


def _passes(several: Sequence[Planned]) -> list[str]:
    """Return the names of the passes over the data, in order."""
    return max((one.source.passes(one) for one in several), key=len)


def plan_blocks(several: Sequence[Planned], rate: float | None = None) -> Blocks:
    """Return the plan in words; `rate` as in `plan_summary`."""
    planned = several[0]
    plan, source, problem = planned.plan, planned.source, planned.problem
    (queries, items), text = source.shape, source.describe_plan(plan)
    assumed = "" if planned.columns else ", as is assumed"
    counted = [
        "at the positives",
        f"at {problem.thresholds} thresholds" if problem.thresholds else "",
        f"at {problem.edges:,} edges of a histogram" if problem.edges else "",
    ]
    first, *others = _multiplied_by(planned) or [""]
    kind = f"matrix products, by {first}"
    if others:
        kind = "; where too many pairs are left, ".join([first, *others])
    rounds = f"{len(plan.rounds):,}; the statistics of each go to disk before the next"
    on = " of ".join(describe_threads({"workers": plan.workers, "threads": plan.threads}))
    rows = [
        describe_inputs(describe_source(source)),
        ("Protocol", ", ".join(dict.fromkeys(one.request.protocol.name for one in several))),
        ("Evaluations", f"{len(several):,}, in one pass" if len(several) > 1 else ""),
        (
            "Size",
            f"{plural(queries, 'query', 'queries')} × {plural(items, 'gallery item')}: "
            f"{amount(plan.pairs)} pairs, {problem.pairs.positives:,} of them positive{assumed}",
        ),
        ("Layout", text.layout),
        ("Passes", ", ".join(_passes(several))),
        ("Counts", ", ".join(filter(None, counted))),
        ("Tasks", f"{len(plan.tasks):,}, on {on}"),
        ("Tile", text.tile),
        ("Reads", f"{format_bytes(plan.bytes_read)} in all passes, before decompression"),
        ("Computes", f"{amount(plan.flops)} floating-point operations in {kind}" if first else ""),
        ("Rounds", rounds if plan.round else ""),
    ]
    if plan.flops and rate is not None:
        time = duration(_seconds_at(rate, plan))
        rows.append(("Time", f"{time}, at {amount(rate)} operations a second of each thread"))
    each = " for each worker" if plan.workers else ""
    beyond = f"{format_bytes(plan.memory)}{each}, beyond what the process holds"
    peak = f"{format_bytes(plan.peak)} projected peak, of {beyond}"
    rows += [("Memory", peak), *_sizes(plan.parts)]
    if plan.client:
        peak = f"{format_bytes(plan.client_peak)} projected peak of this process, beyond the same"
        rows += [("Client", peak), *_sizes(plan.client)]
    return [facts(rows)]


def _sizes(parts: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return a line for each part of the memory."""
    width = max(map(len, parts))
    return [("", f"{name:<{width}}  {format_bytes(size):>9}") for name, size in parts.items()]


def options_table(results: Results) -> Table:
    """Return a row an option, a column a result; where they differ is marked."""
    return _side_by_side("Option", {name: _options(one) for name, one in results.items()})


def counts_table(results: Results) -> Table:
    """Return a row a count of queries, items or pairs, a column a result."""
    columns = {
        name: {title: f"{one.counts[key]:,}" for key, title in COUNTS.items()}
        for name, one in results.items()
    }
    return _side_by_side("Number", columns)


def _side_by_side(head: str, columns: Mapping[str, Mapping[str, str]]) -> Table:
    rows = []
    for name in {name: None for column in columns.values() for name in column}:
        texts = [column.get(name, "") for column in columns.values()]
        mark = "differs" if len(set(texts)) > 1 else ""
        rows.append((Cell(name, mark), *(Cell(text, mark=mark) for text in texts)))
    return Table.of((head, *map(shortened, columns)), rows, align="l" * (len(columns) + 1))


def _options(result: Evaluation) -> dict[str, str]:
    protocol, inputs = result.provenance["protocol"], result.provenance["inputs"]
    options = result.options
    ignored = saved_protocol(protocol).ignored()
    texts = {
        "Distance": str(inputs.get("metric", "")),
        "Protocol": str(protocol["name"]),
        "Ignored pairs": "; ".join(ignored) or "none by camera",
        "Junk identities": describe_junk(protocol),
        "CMC": options.cmc,
        "Queries without a positive": options.unmatched,
        "Average over": options.average,
        "Ties": options.ties,
        "Average precision": options.ap,
        "Verification precision (VP)": options.vp,
        "False-rate budget": f"{options.false_rate_budget:,}",
        "Distances of τ = 0 and 1": describe_range(result.range) or "not used",
        "Differences": describe_difference(result.provenance),
        "Refined": ", ".join(result.provenance.get("refined", ())),
        "Lists": " · ".join(filter(None, describe_reading(result.provenance))),
    }
    return {name: text for name, text in texts.items() if text}
