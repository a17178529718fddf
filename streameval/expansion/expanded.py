"""Features expanded by their nearest gallery items, as a source."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np

from streameval.choices import Expansion
from streameval.errors import OptionError, entry_point, refuse
from streameval.expansion.derived import DerivedFeatures
from streameval.expansion.search import AmongOthers, InGallery, Neighbors
from streameval.expansion.sums import RowSums, powers
from streameval.expansion.written import MadeArray, block_bytes, write_rows, writing_plan
from streameval.metrics.options import is_count, is_number
from streameval.planning.plan import Limits, Plan, pieces
from streameval.reranking.stages import READ_BYTES
from streameval.run.session import Session
from streameval.sources.feature_source import FeatureSource
from streameval.sources.features import Features
from streameval.typing import FloatArray, JsonObject, Span

AQE, ALPHA_QE, DBA = EXPANSIONS = get_args(Expansion)
WEIGHED = ("cosine", "dot")
"""Metrics with an inner product to weigh neighbours by."""
MOST_ALPHA = 1000


class Expanded(DerivedFeatures):
    """Features expanded by their nearest gallery items.

    With ``aqe``, average query expansion, a query q becomes (q + g_1 + … + g_k) / (k + 1), with
    g_1 … g_k its k nearest gallery items: Chum, Philbin, Sivic, Isard and Zisserman, "Total Recall"
    (ICCV 2007). With ``alpha-qe`` it becomes q + Σ w_i g_i, w_i = max(q·g_i, 0)^α: Radenović,
    Tolias and Chum, "Fine-tuning CNN Image Retrieval with No Human Annotation" (TPAMI 2018). With
    ``dba``, database-side augmentation, a gallery item g becomes (g + g_1 + … + g_k) / (k + 1) of
    the k nearest others: Turcot and Lowe, "Better matching with fewer features" (ICCV Workshops
    2009); Arandjelović and Zisserman, "Three things everyone should know to improve object
    retrieval" (CVPR 2012).

    Under cosine, rows are divided by their norms first. Neighbours are exact, ties are by index,
    and labels play no part. Sums are in float64, in order of rank, and rounded once, to float32.

    Parameters
    ----------
    features : Features, Expanded or MultiQuery
    name : {"aqe", "alpha-qe", "dba"}
    k : int
        Nearest items; all where there are fewer.
    alpha : float, optional
        α of ``alpha-qe``, from 0 to 1000; 3 by default. The metric has to be cosine or dot.
    folder : str or Path, optional
        Where new features are written, and neighbours are kept: an interrupted evaluation goes on
        with them. On a cluster of several machines all must see it.

    Raises
    ------
    OptionError
        If the name is unknown, an option is out of bounds, or the metric has no weights.
    """

    @entry_point
    def __init__(
        self,
        features: FeatureSource,
        name: Expansion,
        k: int = 10,
        alpha: float | None = None,
        *,
        folder: str | Path | None = None,
    ) -> None:
        super().__init__(features, folder)
        refuse(
            OptionError,
            name not in EXPANSIONS
            and f"unknown expansion {name!r}; known expansions: {', '.join(EXPANSIONS)}",
            not is_count(k) and f"k is {k!r}; a whole number of at least 1 is needed",
            alpha is not None
            and name != ALPHA_QE
            and f"alpha is {alpha!r}, and {name} has no weights: leave alpha out, or choose "
            f"{ALPHA_QE}",
            alpha is not None
            and not (is_number(alpha) and 0 <= alpha <= MOST_ALPHA)
            and f"alpha is {alpha!r}; a number from 0 to {MOST_ALPHA} is needed",
            name == ALPHA_QE
            and self.metric not in WEIGHED
            and f"{ALPHA_QE} weighs by inner products, and the metric is {self.metric}; expected "
            f"one of {', '.join(WEIGHED)}",
        )
        self.name, self.k = name, int(k)
        self.alpha = float(3.0 if alpha is None else alpha)
        self.side = "gallery" if name == DBA else "query"

    def __repr__(self) -> str:
        alpha = f", alpha={self.alpha}" if self.name == ALPHA_QE else ""
        return f"Expanded({self.features!r}, {self.name!r}, k={self.k}{alpha})"

    def step(self) -> JsonObject:
        """Return its name, k and, of weights, α."""
        alpha = {"alpha": self.alpha} if self.name == ALPHA_QE else {}
        return {"name": self.name, "k": self.k, **alpha}

    @property
    def making(self) -> list[str]:
        """The names of the passes that make the features, in order."""
        return [*self.features.making, "neighbors", "expanding"]

    def stages(self, limits: Limits) -> list[Plan]:
        """Return the plans of the passes that make the features.

        Raises
        ------
        BudgetError
            If one does not fit the limits.
        """
        before, features = self.features.stages(limits), self.features.outline()
        search, most = self._search(features), self._most
        if not most:
            return before
        rows = search.shape[0]
        held = {"neighbors": rows * (12 * (most + 1) + 8), "rows that were read": rows * READ_BYTES}
        gallery = AmongOthers(features).data()
        writing = writing_plan(self.shape, held, gallery, rows * (most + 1), limits)
        return [*before, search.neighbor_plan(most, limits), writing]

    @property
    def _most(self) -> int:
        """How many neighbours there are of each row."""
        others = self.shape[1] - int(self.name == DBA)
        return max(min(self.k, others), 0)

    def _search(self, features: Features) -> AmongOthers | InGallery:
        return AmongOthers(features) if self.name == DBA else InGallery(features)

    def make(self, features: Features, array: MadeArray, session: Session, limits: Limits) -> None:
        """Find the neighbours, and write the new features."""
        search, most = self._search(features), self._most
        (rows, items), width = search.shape, features.width
        session.progress.begin(rows * items + rows, 0)
        session.guards[search] = session.guard(features)
        near = Neighbors(np.empty((rows, 0), np.int32), np.empty((rows, 0)))
        if most:
            near = search.nearest(most, limits, session, self._kept(session))
        row_bytes = width * (8 + features.dtype.itemsize + features.gallery.dtype.itemsize)
        step = max(block_bytes(limits) // ((most + 2) * row_bytes), 1)
        make = partial(self._rows, search, near)
        write_rows("expanding", array, make, pieces((0, rows), step), search, session)

    def _kept(self, session: Session) -> Path | None:
        """Return where neighbours are kept; None where they are not."""
        if self.folder is not None:
            return self.folder / f"{self.name} {self.depth}"
        return session.record.file(f"expansion {self.depth}")

    def _rows(self, search: AmongOthers | InGallery, near: Neighbors, span: Span) -> FloatArray:
        """Return some of the new rows, [m, D] float64."""
        rows = RowSums(search.read_query(*span), normalised=self.normalised)
        item, distance = near.item[slice(*span)], near.distance[slice(*span)]
        if item.size:
            into = np.repeat(np.arange(len(item)), item.shape[1])
            taken, place = np.unique(item, return_inverse=True)
            vectors = search.take_gallery(taken.astype(np.int64))
            rows.add(vectors, into, place.ravel(), self._weights(distance).ravel())
        if self.name != ALPHA_QE:
            rows.values /= item.shape[1] + 1
        return rows.values

    def _weights(self, distance: FloatArray) -> FloatArray:
        """Return the weights of neighbours, by rank, of their distances."""
        if self.name != ALPHA_QE:
            return np.ones(distance.shape)
        products = 1.0 - distance if self.metric == "cosine" else -distance
        return powers(products.ravel(), self.alpha)
