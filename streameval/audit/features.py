"""The audit of features: values, lengths, copies, and whether rows belong to their labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streameval.arrays.array import Array
from streameval.audit.labels import Audit
from streameval.distances.distance import find_distance
from streameval.protocols.labels import Labels
from streameval.protocols.pairs import Pairs
from streameval.sources.features import Features
from streameval.stretches import rows_of
from streameval.typing import AnyArray, BoolArray, HashArray, IntArray

UNIT_TOLERANCE = 1e-3  # how far from each other lengths are, and vectors still normalised
BLOCK_BYTES = 32 << 20  # read at a time
COPIES = 6  # of a block: in the working dtype, squared, as integers, ...
SAMPLED = 1000  # pairs whose distances tell whether rows belong to their labels
LEAST_SAMPLED = 100
COMPARED = 1000  # pairs of equal hashes that are compared value by value
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Scan:
    """What one pass over the features of a side tells."""

    not_finite: IntArray  # rows
    zero: IntArray  # rows
    least: float  # length of the other rows
    most: float
    hashes: HashArray  # [n], equal for rows of equal values
    usable: BoolArray  # [n], rows that are finite and not zero

    def by_hash(self) -> tuple[IntArray, HashArray]:
        """Return the usable rows in ascending order of their hashes, and these hashes."""
        rows = np.flatnonzero(self.usable)
        order = rows[np.argsort(self.hashes[rows], kind="stable")]
        return order, self.hashes[order]


def audit_features(features: Features, memory: int, gallery: Labels, pairs: Pairs) -> Audit:
    """Return facts of the features, and findings; reads each side once, and some rows again.

    Blocks of rows may take so many bytes of memory; beside them, 10 bytes a row are held. The
    pairs are those that a protocol makes of the labels.
    """
    audit, scans = Audit(), {}
    for side, array in (("query", features.query), ("gallery", features.gallery)):
        scan = scans[side] = scan_rows(array, features.dtype, memory)
        audit.facts[f"{side}_features"] = {
            "uri": array.uri,
            "rows": array.shape[0],
            "columns": array.shape[1],
            "dtype": str(array.dtype),
            "not_finite": len(scan.not_finite),
            "zero": len(scan.zero),
            "lengths": [scan.least, scan.most] if scan.usable.any() else None,
        }
        _audit_values(audit, array, scan, features.metric)
    if features.query.dtype != features.gallery.dtype:
        audit.note(
            "dtypes",
            f"query features are {features.query.dtype}, gallery features {features.gallery.dtype}",
            f"both are taken as {features.dtype}; a copy in the narrower one is no copy",
        )
    _audit_gallery_copies(audit, features, scans["gallery"], gallery)
    _audit_query_copies(audit, features, scans["query"], scans["gallery"], pairs)
    _audit_belonging(audit, features, scans, gallery, pairs)
    return audit


def scan_rows(array: Array, dtype: np.dtype[Any], memory: int) -> Scan:
    """Read all rows of an array, block by block."""
    rows, width = array.shape
    step = max(min(BLOCK_BYTES, memory // COPIES) // max(width * dtype.itemsize, 1), 1)
    finite, zero = np.zeros((2, rows), np.bool_)
    hashes, least, most = np.zeros(rows, np.uint64), np.inf, 0.0
    factors = np.random.default_rng(0).integers(0, 1 << 63, width, np.uint64) * 2 + 1
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        block = np.ascontiguousarray(array.read((start, part.stop)), dtype) + 0.0  # no -0.0
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64))
        finite[part] = np.isfinite(block).all(axis=1)
        zero[part] = finite[part] & ~block.any(axis=1)
        lengths = lengths[finite[part] & ~zero[part]]
        least, most = lengths.min(initial=least), lengths.max(initial=most)
        # A row's hash is the sum of its mixed values times factors, modulo 2^64.
        values = block.view(np.uint32 if block.itemsize == 4 else np.uint64).astype(np.uint64)
        values ^= values >> np.uint64(32)  # of round numbers the low bits are all 0, and stay so
        values *= _ODD
        values ^= values >> np.uint64(32)
        hashes[part] = values @ factors
    odd = np.flatnonzero(~finite), np.flatnonzero(zero)
    return Scan(*odd, float(least), float(most), hashes, finite & ~zero)


def _audit_values(audit: Audit, array: Array, scan: Scan, metric: str) -> None:
    where = f"{array.uri} {array.shape}"
    lengths = f"{where}: lengths are from {scan.least:.4g} to {scan.most:.4g}"
    if len(scan.not_finite):
        audit.warn(
            "not-finite",
            f"{where}: {len(scan.not_finite):,} rows hold NaN or infinity, first row "
            f"{scan.not_finite[0]}",
            "an evaluation is refused at the first; mend or drop these rows, and their labels",
        )
    uses_lengths = find_distance(metric).uses_lengths
    if len(scan.zero):
        effect = "they are at one distance of everything; a model or a loader may have failed there"
        if not uses_lengths:
            effect = "they have no cosine distance, and an evaluation is refused; drop or mend them"
        rows = f"{len(scan.zero):,} rows are zero vectors, first row {scan.zero[0]}"
        audit.warn("zero-vectors", f"{where}: {rows}", effect)
    if not uses_lengths and scan.most > scan.least * (1 + UNIT_TOLERANCE):
        effect = "cosine ignores lengths; --metric euclidean or dot ranks otherwise"
        audit.note("not-normalised", lengths, effect)
    far = max(abs(scan.least - 1), abs(scan.most - 1)) > UNIT_TOLERANCE
    if uses_lengths and scan.usable.any() and far:
        effect = f"{metric} ranks by lengths, too; --metric cosine does not"
        audit.note("not-normalised", f"{lengths}, not 1", effect)


def _audit_gallery_copies(audit: Audit, features: Features, scan: Scan, labels: Labels) -> None:
    """Report gallery rows that are copies of an earlier row."""
    order, hashes = scan.by_hash()
    first = order[np.searchsorted(hashes, hashes)]
    copies = first != order
    copy, of = _equal_rows(features.gallery, features.gallery, order[copies], first[copies])
    audit.facts["gallery_copies"] = len(copy)
    if not len(copy):
        return
    effect = "their distances are tied, and count once more"
    other = np.count_nonzero(labels.id[copy] != labels.id[of])
    if other:
        effect += "; where identities differ, how ties are broken decides: see --ties"
    audit.warn(
        "copies-in-gallery",
        f"{features.gallery.uri}: {len(copy):,} rows are copies of others, such as row {copy[0]} "
        f"of row {of[0]}; {other:,} of them have another identity",
        effect,
    )


def _audit_query_copies(
    audit: Audit, features: Features, query: Scan, gallery: Scan, pairs: Pairs
) -> None:
    """Report queries that are copies of gallery rows, and whether the copies are positives."""
    order, hashes = gallery.by_hash()
    rows = np.flatnonzero(query.usable & np.isin(query.hashes, hashes))
    items = order[np.searchsorted(hashes, query.hashes[rows])]
    rows, items = _equal_rows(features.query, features.gallery, rows, items)
    audit.facts["query_copies"] = len(rows)
    if not len(rows):
        return
    message = (
        f"{len(rows):,} queries are copies of gallery rows, such as query {rows[0]} of row "
        f"{items[0]}"
    )
    of_query, items = pairs.query[pairs.positive], pairs.item[pairs.positive]
    same = (query.hashes[of_query] == gallery.hashes[items]) & query.usable[of_query]
    count = len(np.unique(of_query[same & np.isin(of_query, rows)]))
    audit.facts["query_copies_positive"] = count
    if count:
        audit.warn(
            "queries-in-gallery",
            f"{message}; for {count:,} the copy is a positive",
            "these are found first, at distance 0, and raise CMC and mAP: likely leakage; remove "
            "the copies, or ignore them (--self-match)",
        )
    else:
        audit.note(
            "queries-in-gallery",
            f"{message}; no copy is a positive",
            "as ignored items they change nothing; as negatives they are ahead of every positive",
        )


def _equal_rows(
    one: Array, other: Array, left: IntArray, right: IntArray
) -> tuple[IntArray, IntArray]:
    """Drop pairs of rows with equal hashes that differ; the first thousand are compared."""
    same = np.ones(len(left), np.bool_)
    some = slice(0, COMPARED)
    if len(left):
        same[some] = (_rows(one, left[some]) == _rows(other, right[some])).all(axis=1)
    return left[same], right[same]


def _rows(array: Array, rows: IntArray) -> AnyArray:
    wanted, at = np.unique(rows, return_inverse=True)
    return array.take(wanted)[at]


def _audit_belonging(
    audit: Audit, features: Features, scans: dict[str, Scan], gallery: Labels, pairs: Pairs
) -> None:
    """Compare distances of pairs of one identity with those of others, of a seeded sample."""
    rng = np.random.default_rng(0)
    usable = scans["gallery"].usable
    indptr, item = pairs.positives()
    of_query = rows_of(indptr)
    kept = np.flatnonzero(scans["query"].usable[of_query] & usable[item])
    kept = rng.choice(kept, min(SAMPLED, len(kept)), replace=False)
    rows = np.flatnonzero(usable & ~pairs.junk)
    order = rows[np.argsort(gallery.id[rows], kind="stable")]
    next_same = np.flatnonzero(gallery.id[order[1:]] == gallery.id[order[:-1]])
    next_same = rng.choice(next_same, min(SAMPLED, len(next_same)), replace=False)
    for name, one, left, right in (
        ("queries and gallery", features.query, of_query[kept], item[kept]),
        ("the gallery", features.gallery, order[next_same], order[next_same + 1]),
    ):
        if len(left) < LEAST_SAMPLED or not len(rows):
            continue
        closer = _share_closer(features, one, left, right, rng.choice(rows, len(left)))
        audit.facts.setdefault("same_identity_closer", {})[name] = round(closer, 4)
        if closer < 0.5 + 4 * np.sqrt(1 / (6 * len(left))):
            audit.warn(
                "rows-and-labels",
                f"pairs of one identity of {name} are closer than others in {100 * closer:.0f} % "
                f"of {len(left):,} comparisons, no more often than by chance",
                "rows and labels may be in different orders: every metric is at chance then; check "
                "the order in which features and labels were written",
            )


def _share_closer(
    features: Features, one: Array, left: IntArray, right: IntArray, other: IntArray
) -> float:
    """Return how often a pair of one identity is closer, by cosine, than a pair at random."""
    drawn = (_rows(one, left), _rows(features.gallery, right), _rows(features.gallery, other))
    vectors = [np.asarray(rows, features.dtype).astype(np.float64) for rows in drawn]
    own, same, random = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in vectors)
    near, far = (own * same).sum(axis=1), (own * random).sum(axis=1)
    return float((np.sign(near[:, None] - far).mean() + 1) / 2)
