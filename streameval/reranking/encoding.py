"""Encodings of images by their k-reciprocal neighbours: the second stage of re-ranking.

Zhong, Zheng, Cao and Li, "Re-ranking Person Re-identification with k-reciprocal Encoding" (CVPR
2017). Of N images, with D'(i, j) = D(i, j) / max_j D(i, j):

    N(i, k)   the k + 1 nearest of i, itself first; ties by index
    R(i, k)   {j in N(i, k) : i in N(j, k)}
    R*(i)     R(i, k1), and for each c in R(i, k1) all of R(c, round(k1 / 2)) of which more than two
              thirds are in R(i, k1)
    V(i, j)   exp(−D'(i, j)) on R*(i), divided by its sum; where k2 > 1, V(i) becomes the mean of V
              over the first k2 of the ranking of i, itself among them

Sums are by ascending image, in float64, and the exponential is `exponential.exp_down`: V has the
same bits on any processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from streameval.compilation import compiled
from streameval.reranking.exponential import exp_down
from streameval.stretches import rows_of
from streameval.typing import AnyArray, FloatArray, Indices, Int32Array, IntArray


@dataclass(frozen=True)
class Parameters:
    """What re-ranking is told.

    Attributes
    ----------
    k1, k2 : int
        Sizes of neighbourhoods, and of means.
    lambda_ : float
        λ: the share of D' in the distance.
    power : {2, 4}
        Of the Euclidean distance, in D'.
    """

    k1: int
    k2: int
    lambda_: float
    power: int = 2

    @property
    def half(self) -> int:
        """k1 / 2, rounded half to even as NumPy does."""
        return int(np.around(self.k1 / 2))

    @property
    def most_entries(self) -> int:
        """The most entries of an image's V, before the mean."""
        return (self.k1 + 1) * (self.half + 2)

    @property
    def neighbors(self) -> int:
        """Nearest images that are needed of each, beside itself."""
        return max(self.k1, self.k2 - 1)


class Ranking(NamedTuple):
    """The nearest images of each.

    Attributes
    ----------
    item : [N, K + 1] int32
        Itself first; ties by index.
    distance : [N, K + 1] float64
        0 of itself.
    greatest : [N] float64
        The greatest distance of each.
    """

    item: Int32Array
    distance: FloatArray
    greatest: FloatArray


class SparseRows(NamedTuple):
    """Sparse rows.

    Attributes
    ----------
    begin : [n + 1] int64
        Where each row begins.
    item : [E] int32
        Ascending within a row.
    value : [E] float64
    """

    begin: IntArray
    item: AnyArray
    value: AnyArray

    @property
    def of_entry(self) -> IntArray:
        """The row of each entry, [E] int64."""
        return rows_of(self.begin)


def members(ranking: Ranking, images: IntArray, parameters: Parameters) -> SparseRows:
    """Return R* of some images, with the distances that the ranking holds; NaN elsewhere."""
    room = len(images) * parameters.most_entries
    item, value = np.empty(room, np.int32), np.empty(room)
    begin = np.zeros(len(images) + 1, np.int64)
    _members(ranking, images, parameters.k1 + 1, parameters.half + 1, begin, item, value)
    return SparseRows(begin, item[: begin[-1]].copy(), value[: begin[-1]].copy())


def weigh(rows: SparseRows, greatest: FloatArray, power: int) -> None:
    """Replace the distances of rows by V before the mean, in place.

    Parameters
    ----------
    rows : SparseRows
    greatest : [n] float64
        The greatest distance of each row's image.
    power : {2, 4}
    """
    _weigh(rows.begin, rows.value, greatest, power)


def mean_rows(rows: SparseRows, of: IntArray) -> SparseRows:
    """Return means of rows.

    Parameters
    ----------
    rows : SparseRows
    of : [n, k2] int64
        The rows that each is the mean of, ascending.
    """
    count = np.diff(rows.begin)[of]
    room = int(count.sum())
    begin, item, value = np.zeros(len(of) + 1, np.int64), np.empty(room, np.int32), np.empty(room)
    longest = int(count.sum(axis=1).max(initial=0))
    _means(*rows, of, longest, begin, item, value)
    return SparseRows(begin, item[: begin[-1]], value[: begin[-1]])


def overlap(
    rows: SparseRows, one: Indices, other: Indices, images: int | None = None
) -> FloatArray:
    """Return Σ_m min(V(i, m), V(j, m)) of listed pairs of images, by ascending m, [p] float64.

    Fast where pairs with the same first image follow one another.

    Parameters
    ----------
    rows : SparseRows
    one, other : [p] integers
    images : int, optional
        How many images there are; by default, as many as rows.
    """
    out, spread = np.empty(len(one)), np.zeros(images or len(rows.begin) - 1)
    _overlaps(*rows, one, other, spread, out)
    return out


@compiled(inline="always")
def relative_to(distance, greatest, power):  # type: ignore[no-untyped-def]
    """Return D' of a distance D and the greatest, which is 0 where all images are alike."""
    relative = distance / greatest if greatest > 0.0 else 0.0
    return relative * relative if power == 4 else relative


@compiled(inline="always")
def _holds(items, count, wanted):  # type: ignore[no-untyped-def]
    found = False
    for t in range(count):
        found |= items[t] == wanted
    return found


@compiled(inline="always")
def _reciprocal(item, i, count, out):  # type: ignore[no-untyped-def]
    """Write those of the first `count` nearest of i that have i among theirs; return how many."""
    found = 0
    for t in range(min(count, item.shape[1])):
        j = item[i, t]
        if _holds(item[j], min(count, item.shape[1]), i):
            out[found] = j
            found += 1
    return found


@compiled
def _members(ranking, images, whole, half, begin, item, value):  # type: ignore[no-untyped-def]
    near, distance = ranking.item, ranking.distance
    own, others = np.empty(whole, np.int32), np.empty(half, np.int32)
    found = np.empty(whole * (half + 1), np.int32)
    for row, i in enumerate(images):
        count = _reciprocal(near, i, whole, own)
        found[:count], filled = own[:count], count
        for t in range(count):
            more, inside = _reciprocal(near, own[t], half, others), 0
            for u in range(more):
                inside += _holds(own, count, others[u])
            if 3 * inside > 2 * more:
                found[filled : filled + more] = others[:more]
                filled += more
        found[:filled].sort()
        at = begin[row]
        for t in range(filled):
            j = found[t]
            if t > 0 and j == found[t - 1]:
                continue
            item[at], value[at] = j, np.nan
            for u in range(near.shape[1]):  # distances are symmetric, to the bit
                if near[i, u] == j:
                    value[at] = distance[i, u]
                    break
                if near[j, u] == i:
                    value[at] = distance[j, u]
                    break
            at += 1
        begin[row + 1] = at


@compiled
def _weigh(begin, value, greatest, power):  # type: ignore[no-untyped-def]
    for row in range(len(begin) - 1):
        total, most = 0.0, greatest[row]
        for t in range(begin[row], begin[row + 1]):
            value[t] = exp_down(-relative_to(value[t], most, power))
            total += value[t]
        for t in range(begin[row], begin[row + 1]):
            value[t] /= total


@compiled
def _means(begin, item, value, of, longest, out, items, values):  # type: ignore[no-untyped-def]
    gathered, weights = np.empty(longest, np.int32), np.empty(longest)
    count = of.shape[1]
    for row in range(len(of)):
        filled = 0
        for t in range(count):
            for u in range(begin[of[row, t]], begin[of[row, t] + 1]):
                gathered[filled], weights[filled] = item[u], value[u]
                filled += 1
        at, last = out[row] - 1, -1
        for t in np.argsort(gathered[:filled], kind="mergesort"):  # rows stay in order
            if gathered[t] != last:
                at, last = at + 1, gathered[t]
                items[at], values[at] = last, 0.0
            values[at] += weights[t]
        for t in range(out[row], at + 1):
            values[t] /= count
        out[row + 1] = at + 1


@compiled
def _overlaps(begin, item, value, one, other, spread, out):  # type: ignore[no-untyped-def]
    """Write the overlaps of pairs; a row is spread over all images, [N] zeros, while it is one's.

    What only one of two rows has adds 0.
    """
    held = -1
    for t in range(len(one)):
        i, j, total = one[t], other[t], 0.0
        if i != held:
            if held >= 0:
                for e in range(begin[held], begin[held + 1]):
                    spread[item[e]] = 0.0
            for e in range(begin[i], begin[i + 1]):
                spread[item[e]] = value[e]
            held = i
        for e in range(begin[j], begin[j + 1]):
            total += min(spread[item[e]], value[e])
        out[t] = total
