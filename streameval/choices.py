"""Names that options choose among, in a module that is light to import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

TieRule = Literal["pessimistic", "optimistic", "stable", "expected"]
AveragePrecision = Literal["step", "trapezoid", "threshold"]
VerificationPrecision = Literal["reference", "equation"]
CmcReading = Literal["first-match", "all-shots", "single-gallery-shot", "distinct-identities"]
Unmatched = Literal["exclude", "miss", "error"]
"""What a query without a positive is to a mean over the queries with one."""
SelfMatch = Literal["index", "key"]
RangeName = Literal["auto", "minmax", "minmax-all"]
"""Where the distances of τ = 0 and τ = 1 come from, if they are not given."""
Missing = Literal["bounds", "never"]
"""What items that are not in a list of neighbours are taken for."""
ListedAs = Literal["1-based", "0-based", "key"]
"""What the entries of a list of pairs are: gallery indices, or keys."""
NumberedFrom = Literal["0-based", "1-based"]
"""What row numbers count from."""
KINDS = PROTOCOL, GALLERY, OPTIONS = "protocol", "gallery", "options"
"""What results that are compared can differ in."""
Expansion = Literal["aqe", "alpha-qe", "dba"]
"""How features are made of their neighbours: query expansion, or augmentation of the gallery."""
RerankWith = Literal["all", "gallery"]
"""Which images re-ranking compares: all, or the gallery and one query at a time."""
Fuse = Literal["mean", "max"]
"""How a query and further images of it are made one."""
Format = Literal["table", "json", "csv", "markdown", "latex", "parquet"]
"""How a table is printed or written."""
DISTANCES = ("cosine", "euclidean", "sqeuclidean", "dot", "manhattan")
"""Distances of features; each is a module of its name in `distances`."""


class IdentityReading(NamedTuple):
    """A reading of CMC that counts gallery identities, for which the whole gallery is needed.

    Attributes
    ----------
    does : str
        What a protocol with it does, for messages.
    field : str
        The field of `RankStatistics` that it is read from.
    """

    does: str
    field: str


IDENTITY_READINGS: Mapping[str, IdentityReading] = {
    "single-gallery-shot": IdentityReading(
        "draws one item of each gallery identity", "single_shot"
    ),
    "distinct-identities": IdentityReading(
        "counts distinct gallery identities", "identities_ahead"
    ),
}
"""Of the readings of CMC, those that count gallery identities."""

OVER_DRAWS = IdentityReading("takes the mean over all draws of the gallery", "single_shot")
"""What is counted in place of trials, whatever the reading of CMC."""
