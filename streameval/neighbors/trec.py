"""Lists of neighbours as TREC files: a run, and what is relevant (qrels).

A line of a run is ``qid Q0 docid rank score tag``, one of qrels ``qid 0 docid 1``. Pairs that the
protocol ignores are in neither: a reader of the files takes what is not in the qrels for not
relevant, and would count it. Positives that no list has returned are in the qrels.

Readers rank by score alone, as float32 (trec_eval), and break ties in their own ways. So the score
is the distance's negative, next to it where that would be a tie: the order is that of the tie
rule here, in any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from streameval.errors import InputError, OptionError
from streameval.neighbors.lists import Lists, Places
from streameval.output import NewFile
from streameval.protocols.labels import AnyArray, Labels
from streameval.protocols.pairs import Pairs
from streameval.statistics import FloatArray, IntArray

Names = Sequence[Any] | AnyArray

TAG = "streameval"
SIGN = np.int32(0x7FFFFFFF)


def names_of(labels: Labels, side: str) -> Names:
    """Return what each item is called: its key, or its number from 0 where there are no keys.

    Raises
    ------
    InputError
        If a key can't stand in a line, or two are the same.
    """
    if labels.key is None:
        return range(len(labels))
    for at, name in enumerate(map(str, labels.key.tolist())):
        if not name or " " in name or not name.isprintable():
            raise InputError(
                f"the key {name!r} of {side} row {at} can't be in a TREC file, whose columns are "
                "parted by blanks: give keys without, or none, and items go by their numbers"
            )
    order = np.argsort(labels.key, kind="stable")
    same = np.flatnonzero(labels.key[order[1:]] == labels.key[order[:-1]])
    if len(same):
        first, again = order[same[0] : same[0] + 2].tolist()
        raise InputError(
            f"{side} rows {first} and {again} have the same key {str(labels.key[first])!r}: a TREC "
            "file needs one a row; give other keys, or none, and items go by their numbers"
        )
    return labels.key


def write_trec(
    query: Labels,
    gallery: Labels,
    pairs: Pairs,
    ties: str,
    files: Mapping[str, NewFile],
) -> Callable[[Lists], None]:
    """Write the positives, and return a function that writes the lists of the next queries.

    Raises
    ------
    OptionError
        If the tie rule does not give one order.
    InputError
        If a name can't be in a file.
    """
    if ties == "expected":
        raise OptionError(
            "ties expected is a mean over many orders, and a TREC run is one: choose "
            "--ties pessimistic, optimistic or stable"
        )
    names, items = names_of(query, "query"), names_of(gallery, "gallery")
    done = 0
    if "trec_qrels" in files:
        files["trec_qrels"].write_all(qrels_lines(pairs, names, items))

    def write(returned: Lists) -> None:
        nonlocal done
        first, done = done, done + len(returned.indptr) - 1
        if "trec_run" in files:
            part, named = pairs.block(first, done), names[first:done]
            files["trec_run"].write_all(run_lines(returned, part, ties, named, items))

    return write


def qrels_lines(pairs: Pairs, queries: Names, gallery: Names) -> Iterator[str]:
    """Give a line a positive pair, whether it is returned or not."""
    indptr, item = pairs.positives()
    for query, name in enumerate(queries):
        for one in item[indptr[query] : indptr[query + 1]].tolist():
            yield f"{name} 0 {gallery[one]} 1\n"


def run_lines(
    returned: Lists, pairs: Pairs, ties: str, queries: Names, gallery: Names
) -> Iterator[str]:
    """Give a line a returned item that is not ignored, nearest first within its query.

    Parameters
    ----------
    returned : Lists
        Lists of some queries.
    pairs : Pairs
        Of the same queries.
    ties : {"pessimistic", "optimistic", "stable"}
    queries, gallery : sequences of names
        What these queries, and the items of the gallery, are called.
    """
    places = Places.of(pairs, returned)
    valid = np.flatnonzero(places.positive | places.negative)
    query, item = returned.query[valid], returned.item[valid]
    distance, positive = returned.distance[valid], places.positive[valid]
    first = {"pessimistic": positive, "optimistic": ~positive}.get(ties, np.zeros(len(valid)))
    order = np.lexsort((item, first, distance, query))
    begin = np.searchsorted(query, np.arange(pairs.queries + 1))
    for at, name in enumerate(queries):
        own = order[begin[at] : begin[at + 1]]
        rows = zip(item[own].tolist(), descending(-distance[own]).tolist(), strict=True)
        for rank, (one, score) in enumerate(rows, 1):
            yield f"{name} Q0 {gallery[one]} {rank} {score:.9g} {TAG}\n"


def descending(scores: FloatArray) -> npt.NDArray[np.float32]:
    """Return scores that don't rise as float32 that fall, each next to its own, [n]."""
    # As integers, float32 are in the order of their values, and neighbours differ by one.
    near = np.clip(scores, np.finfo(np.float32).min / 2, np.finfo(np.float32).max)
    bits = near.astype(np.float32).view(np.int32)
    place: IntArray = np.where(bits < 0, -(bits & SIGN).astype(np.int64), bits.astype(np.int64))
    step = np.arange(len(place))
    place = np.minimum.accumulate(place + step) - step
    down = np.where(place < 0, -place | 0x80000000, place).astype(np.uint32)
    return down.view(np.float32)
