"""Neighbors: lists of neighbours as a source, stored or made by an index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streameval.choices import Missing
from streameval.errors import OptionError
from streameval.neighbors.index_search import IndexSearch
from streameval.neighbors.list_files import open_lists
from streameval.neighbors.source import Depth
from streameval.neighbors.stored_lists import StoredLists
from streameval.sources.features import Features
from streameval.sources.matrix import ArrayLike


def Neighbors(  # noqa: N802 - it stands for the two classes
    lists: ArrayLike | None = None,
    distances: ArrayLike | None = None,
    *,
    features: Features | None = None,
    index: str | Path | None = None,
    k: Depth | None = None,
    search: str = "",
    train_rows: int | None = None,
    save_index: str | Path | None = None,
    missing: Missing | None = None,
    tighten: bool = False,
    rerank: bool = False,
    width: float = 0.0,
    gallery: int | None = None,
) -> StoredLists | IndexSearch:
    """Return a source of lists of the nearest gallery items of each query.

    Parameters
    ----------
    lists : str, Path or [Q, k] array of integers, optional
        Gallery indices, −1 at the end of a list that is shorter; or a file that holds them and
        their distances under the usual names: `.npz`, a Zarr group, HDF5 as of ann-benchmarks.
    distances : str, Path or [Q, k] array, optional
        Distances of the lists; smaller is closer. Not needed with features.
    features : Features, optional
        Of queries and gallery: what lists are made from (`index`), or what the canonical
        distances of listed items are computed from.
    index : str or Path, optional
        A factory string of FAISS (``Flat``, ``IVF1024,PQ16``), or a file with an index.
    k : int or "auto", optional
        Items of a list; all that is stored, by default. ``auto`` makes lists longer until every
        metric is known to within `width`.
    search : str
        Parameters of the search: ``nprobe=16,efSearch=64``.
    train_rows : int, optional
        Gallery rows that an index is trained on.
    save_index : str or Path, optional
        Where an index that is built is kept.
    missing : {None, "bounds", "never"}
        How items that are not returned are read: as far as the last one that is, or further
        (``bounds``: metrics are intervals); or never found (``never``: a system as deployed).
        ``never`` is the default of an approximate index, else ``bounds``.
    tighten : bool
        Whether to compute the distances of positives that are not returned.
    rerank : bool
        With ``never``: whether to rank by canonical distances, not by those of the index or file.
    width : float
        Of ``k="auto"``: the widest interval that will do.
    gallery : int, optional
        Number of gallery items, where there are no features; by default that of the labels.

    Returns
    -------
    StoredLists or IndexSearch

    Raises
    ------
    InputError
        If arrays don't fit together.
    OptionError
        If options don't.
    """
    given: dict[str, Any] = locals()
    shared = {name: given[name] for name in ("features", "k", "missing", "tighten", "rerank")}
    searching = {name: given[name] for name in ("search", "train_rows", "save_index", "width")}
    if lists is None and index is not None:
        return IndexSearch(index=str(index), **searching, **shared)
    if lists is None or index is not None:
        raise OptionError("give lists of neighbours, or an index that makes them from features")
    for name, value in searching.items():
        if value:
            raise OptionError(f"{name} is for an index, and lists are given: leave it out")
    stored, values, described = open_lists(lists, distances)
    return StoredLists(
        lists=stored, distances=values, described=described, gallery=gallery, **shared
    )
