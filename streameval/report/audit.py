"""An audit as text for the terminal."""

from __future__ import annotations

from typing import Any

from streameval.audit import Audit
from streameval.report.numbers import plural
from streameval.report.table import Table, facts, packed
from streameval.report.terminal import Style, render


def render_audit(audit: Audit, style: Style) -> str:
    """Return the facts of an audit, and its findings with what each would change."""
    said = audit.facts
    rows: list[tuple[str, str]] = []
    for side in ("query", "gallery"):
        if f"{side}_features" in said:
            rows += packed(f"{side.capitalize()} features", _features(said[f"{side}_features"]))
    if "gallery_copies" in said:
        copies = [
            f"{plural(said['gallery_copies'], 'row')} of the gallery",
            f"{plural(said['query_copies'], 'query', 'queries')} in the gallery",
        ]
        rows += packed("Copies", copies)
    queries, gallery = said["queries"], said["gallery"]
    rows += packed(
        "Queries",
        [
            f"{queries['rows']:,} of {plural(queries['identities'], 'identity', 'identities')}",
            f"{queries['positive']:,} in Q+",
            f"{queries['negative']:,} in Q-",
            f"{queries['excluded']:,} excluded",
        ],
    )
    rows += packed(
        "Gallery",
        [
            f"{gallery['rows']:,} of {plural(gallery['identities'], 'identity', 'identities')}",
            f"{gallery['junk']:,} junk",
            f"{gallery['distractors']:,} of identities that no query has",
        ],
    )
    images = [
        f"{plural(count, 'identity', 'identities')} with {name}"
        for name, count in gallery["identities_by_images"].items()
        if count
    ]
    rows += packed("By images", images or ["no identities"])
    rows += packed(
        "Pairs",
        [
            f"{said['pairs']['positive']:,} positive",
            f"{said['pairs']['ignored_of_same_identity']:,} of one identity ignored",
        ],
    )
    if "cameras" in said:
        cameras = [f"{side} {len(ids)}" for side, ids in said["cameras"].items()]
        rows += packed("Cameras", cameras)
    for name, share in said.get("same_identity_closer", {}).items():
        rows += packed(
            "One identity", [f"closer than others in {100 * share:.1f} % of a sample, {name}"]
        )
    blocks: list[str | Table] = [facts(rows)]
    for finding in audit.findings:
        blocks += ["", facts([(finding.severity, str(finding))], wraps=True)]
    if not audit.findings:
        blocks += ["", facts([("Findings", "none")])]
    return render(style, blocks)


def _features(said: dict[str, Any]) -> list[str]:
    parts = [
        str(said["uri"]),
        f"{said['rows']:,} x {said['columns']:,} of {said['dtype']}",
        f"{plural(said['not_finite'], 'row')} not finite",
        f"{said['zero']:,} zero",
    ]
    if said["lengths"] is not None:
        least, most = said["lengths"]
        parts.append(f"lengths {least:.4g} to {most:.4g}")
    return parts
