"""The facts and findings of an audit, for the terminal."""

from __future__ import annotations

from typing import Any

from streameval.audit import Audit
from streameval.report.numbers import plural
from streameval.report.table import Facts, Table, facts
from streameval.report.terminal import Style, render


def render_audit(audit: Audit, style: Style) -> str:
    """Return the facts of an audit, and its findings with what each would change."""
    blocks: list[str | Table] = [facts(_rows(audit.facts))]
    for finding in audit.findings:
        blocks += ["", facts([(finding.severity, str(finding))], wraps=True)]
    if not audit.findings:
        blocks += ["", facts([("Findings", "none")])]
    return render(style, blocks)


def _rows(inputs: dict[str, Any]) -> Facts:
    rows: Facts = [
        (f"{side.capitalize()} features", _features(inputs[f"{side}_features"]))
        for side in ("query", "gallery")
        if f"{side}_features" in inputs
    ]
    if "gallery_copies" in inputs:
        queries = plural(inputs["query_copies"], "query", "queries")
        items = plural(inputs["gallery_copies"], "row")
        rows.append(("Copies", [f"{items} of the gallery", f"{queries} in the gallery"]))
    queries, gallery, pairs = inputs["queries"], inputs["gallery"], inputs["pairs"]
    images = [
        f"{_identities(count)} with {name}"
        for name, count in gallery["identities_by_images"].items()
        if count
    ]
    rows += [
        (
            "Queries",
            [
                f"{queries['rows']:,} of {_identities(queries['identities'])}",
                f"{queries['positive']:,} in Q+",
                f"{queries['negative']:,} in Q-",
                f"{queries['excluded']:,} excluded",
            ],
        ),
        (
            "Gallery",
            [
                f"{gallery['rows']:,} of {_identities(gallery['identities'])}",
                f"{gallery['junk']:,} junk",
                f"{gallery['distractors']:,} of identities that no query has",
            ],
        ),
        ("By images", images or "no identities"),
        (
            "Pairs",
            [
                f"{pairs['positive']:,} positive",
                f"{pairs['ignored_of_same_identity']:,} of one identity ignored",
            ],
        ),
    ]
    if "cameras" in inputs:
        cameras = inputs["cameras"].items()
        rows.append(("Cameras", [f"{side} {len(known)}" for side, known in cameras]))
    for name, share in inputs.get("same_identity_closer", {}).items():
        text = f"closer than others in {100 * share:.1f} % of a sample, {name}"
        rows.append(("One identity", text))
    return rows


def _identities(count: int) -> str:
    return plural(count, "identity", "identities")


def _features(side: dict[str, Any]) -> list[str]:
    parts = [
        str(side["uri"]),
        f"{side['rows']:,} x {side['columns']:,} of {side['dtype']}",
        f"{plural(side['not_finite'], 'row')} not finite",
        f"{side['zero']:,} zero",
    ]
    if side["lengths"] is not None:
        least, most = side["lengths"]
        parts.append(f"lengths {least:.4g} to {most:.4g}")
    return parts
