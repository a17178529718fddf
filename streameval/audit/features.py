"""The audit of features: values, lengths, copies, and whether rows belong to their labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.arrays.array import Array
from streameval.audit.finding import Audit
from streameval.distances.registry import find_distance
from streameval.protocols.labels import AnyArray, Labels
from streameval.protocols.pairs import Pairs
from streameval.sources.features import Features

UNIT_TOLERANCE = 1e-3  # how far from each other lengths are, and vectors still normalised
BLOCK_BYTES = 32 << 20  # read at a time
COPIES = 6  # of a block: in the working dtype, squared, as integers, ...
SAMPLED = 1000  # pairs whose distances tell whether rows belong to their labels
LEAST_SAMPLED = 100
_ODD = np.uint64(0x9E3779B97F4A7C15)
COMPARED = 1000  # pairs of equal hashes that are compared value by value

IntArray = npt.NDArray[np.int64]
HashArray = npt.NDArray[np.uint64]


@dataclass
class Scan:
    """What one pass over the features of a side tells.

    Attributes
    ----------
    not_finite, zero : list of int
        Rows.
    least, most : float
        Lengths of the other rows.
    hashes : [n] uint64
        Equal for rows of equal values.
    usable : [n] bool
        Rows that are finite and not zero.
    """

    not_finite: list[int]
    zero: list[int]
    least: float
    most: float
    hashes: HashArray
    usable: npt.NDArray[np.bool_]


def audit_features(
    features: Features,
    memory: int,
    query: Labels | None = None,
    gallery: Labels | None = None,
    pairs: Pairs | None = None,
) -> Audit:
    """Return facts of the features, and findings; reads each side once, and some rows again.

    Beside a block of rows, 9 bytes a row are held.

    Parameters
    ----------
    features : Features
    memory : int
        Bytes that blocks of rows may take.
    query, gallery : Labels, optional
    pairs : Pairs, optional
        That a protocol makes of them.
    """
    audit = Audit()
    arrays = {"query": features.query, "gallery": features.gallery}
    scans = {}
    for side, array in arrays.items():
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
    labelled = None if query is None or gallery is None else pairs
    _audit_query_copies(audit, features, scans["query"], scans["gallery"], labelled)
    if query is not None and gallery is not None and pairs is not None:
        _audit_belonging(audit, features, scans, gallery, pairs)
    return audit


def scan_rows(array: Array, dtype: np.dtype[Any], memory: int) -> Scan:
    """Read all rows of an array, block by block."""
    rows, width = array.shape
    row_bytes = max(width * dtype.itemsize, 1)
    step = max(min(BLOCK_BYTES, memory // COPIES) // row_bytes, 1)
    scan = Scan([], [], np.inf, 0.0, np.zeros(rows, np.uint64), np.zeros(rows, np.bool_))
    factors = np.random.default_rng(0).integers(0, 1 << 63, width, np.uint64) * 2 + 1
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        block = np.ascontiguousarray(array.read((start, stop)), dtype) + 0.0  # no -0.0
        with np.errstate(over="ignore", invalid="ignore"):
            lengths = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64))
        finite = np.isfinite(block).all(axis=1)
        zero = finite & ~block.any(axis=1)
        scan.not_finite += (start + np.flatnonzero(~finite)).tolist()
        scan.zero += (start + np.flatnonzero(zero)).tolist()
        usable = finite & ~zero
        scan.usable[start:stop] = usable
        scan.least = min(scan.least, float(lengths[usable].min(initial=np.inf)))
        scan.most = max(scan.most, float(lengths[usable].max(initial=0.0)))
        bits = block.view(np.uint32 if block.itemsize == 4 else np.uint64)
        scan.hashes[start:stop] = _mixed(bits, factors)
    return scan


def _mixed(bits: npt.NDArray[Any], factors: HashArray) -> HashArray:
    """Return a hash of each row: a sum of its mixed values times factors, modulo 2^64."""
    values = bits.astype(np.uint64)
    values ^= values >> np.uint64(32)  # of round numbers the low bits are all 0, and stay so
    values *= _ODD
    values ^= values >> np.uint64(32)
    hashes: HashArray = values @ factors
    return hashes


def _audit_values(audit: Audit, array: Array, scan: Scan, metric: str) -> None:
    where = f"{array.uri} {array.shape}"
    if scan.not_finite:
        audit.warn(
            "not-finite",
            f"{where}: {len(scan.not_finite):,} rows hold NaN or infinity, first row "
            f"{scan.not_finite[0]}",
            "an evaluation is refused at the first; mend or drop these rows, and their labels",
        )
    uses_lengths = find_distance(metric).uses_lengths
    if scan.zero:
        effect = "they are at one distance of everything; a model or a loader may have failed there"
        if not uses_lengths:
            effect = "they have no cosine distance, and an evaluation is refused; drop or mend them"
        audit.warn(
            "zero-vectors",
            f"{where}: {len(scan.zero):,} rows are zero vectors, first row {scan.zero[0]}",
            effect,
        )
    if not uses_lengths and scan.most > scan.least * (1 + UNIT_TOLERANCE):
        audit.note(
            "not-normalised",
            f"{where}: lengths are from {scan.least:.4g} to {scan.most:.4g}",
            "cosine ignores lengths; --metric euclidean or dot ranks otherwise",
        )
    elif uses_lengths and (
        scan.usable.any() and max(abs(scan.least - 1), abs(scan.most - 1)) > UNIT_TOLERANCE
    ):
        audit.note(
            "not-normalised",
            f"{where}: lengths are from {scan.least:.4g} to {scan.most:.4g}, not 1",
            f"{metric} ranks by lengths, too; --metric cosine does not",
        )


def _audit_gallery_copies(
    audit: Audit, features: Features, scan: Scan, labels: Labels | None
) -> None:
    """Report gallery rows that are copies of an earlier row."""
    order, hashes = _by_hash(scan)
    begins = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))[: len(order)]
    first = np.repeat(order[begins], np.diff(np.append(begins, len(order))))
    copy, of = order[first != order], first[first != order]
    copy, of = _equal_rows(features.gallery, features.gallery, copy, of)
    audit.facts["gallery_copies"] = len(copy)
    if not len(copy):
        return
    message = (
        f"{features.gallery.uri}: {len(copy):,} rows are copies of others, such as row "
        f"{copy[0]} of row {of[0]}"
    )
    effect = "their distances are tied, and count once more"
    if labels is not None:
        other = int(np.count_nonzero(labels.id[copy] != labels.id[of]))
        message += f"; {other:,} of them have another identity"
        if other:
            effect += "; where identities differ, how ties are broken decides: see --ties"
    audit.warn("copies-in-gallery", message, effect)


def _audit_query_copies(
    audit: Audit, features: Features, query: Scan, gallery: Scan, pairs: Pairs | None
) -> None:
    """Report queries that are copies of gallery rows, and whether the copies are positives."""
    order, hashes = _by_hash(gallery)
    at = np.minimum(np.searchsorted(hashes, query.hashes), max(len(hashes) - 1, 0))
    rows = np.flatnonzero(query.usable)
    rows = rows[hashes[at[rows]] == query.hashes[rows]] if len(hashes) else rows[:0]
    rows, item = _equal_rows(features.query, features.gallery, rows, order[at[rows]])
    audit.facts["query_copies"] = len(rows)
    if not len(rows):
        return
    message = (
        f"{len(rows):,} queries are copies of gallery rows, such as query {rows[0]} of row "
        f"{item[0]}"
    )
    if pairs is None:
        effect = "an image in both sets is found at distance 0"
        audit.warn("queries-in-gallery", message, effect)
        return
    positive = np.flatnonzero(pairs.positive)
    of_query, items = pairs.query[positive], pairs.item[positive]
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


def _by_hash(scan: Scan) -> tuple[IntArray, HashArray]:
    """Return the usable rows in ascending order of their hashes, and these hashes."""
    rows = np.flatnonzero(scan.usable)
    order = rows[np.argsort(scan.hashes[rows], kind="stable")]
    return order, scan.hashes[order]


def _equal_rows(
    one: Array, other: Array, left: IntArray, right: IntArray
) -> tuple[IntArray, IntArray]:
    """Drop pairs of rows with equal hashes that differ; the first thousand are compared."""
    if not len(left):
        return left, right
    same = np.ones(len(left), np.bool_)
    some = slice(0, COMPARED)
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
    of_query = np.repeat(np.arange(pairs.queries), np.diff(indptr))
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
        other = rng.choice(rows, len(left))
        closer = _share_closer(features, one, left, right, other)
        chance = 0.5 + 4 * np.sqrt(1 / (6 * len(left)))
        audit.facts.setdefault("same_identity_closer", {})[name] = round(closer, 4)
        if closer < chance:
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
    dtype = features.dtype
    from_rows = _unit(_rows(one, left), dtype)
    same = (from_rows * _unit(_rows(features.gallery, right), dtype)).sum(axis=1)
    random = (from_rows * _unit(_rows(features.gallery, other), dtype)).sum(axis=1)
    ahead = np.searchsorted(np.sort(random), same, side="left")
    ties = np.searchsorted(np.sort(random), same, side="right") - ahead
    return float(((ahead + ties / 2) / len(random)).mean())


def _unit(rows: AnyArray, dtype: np.dtype[Any]) -> npt.NDArray[np.float64]:
    values = np.asarray(rows, dtype).astype(np.float64)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    return values
