"""The hardest queries, and their ranked lists as pictures: thumbnails within the page."""

from __future__ import annotations

import base64
import io
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Formatter

import numpy as np

from streameval.display.figures import shortened
from streameval.display.table import Cell, Table
from streameval.errors import InputError, OptionError
from streameval.labels.columns import read_label_table
from streameval.protocols.labels import KNOWN_COLUMNS
from streameval.rankings import SIDES, Inputs, RankedList, nearest_items, reopen
from streameval.result import Evaluation, Results
from streameval.result.comparison import query_scores
from streameval.typing import AnyArray, FloatArray, JsonObject

LABELS = ("id", "cam")
SIZE = 160, 240  # pixels of a thumbnail, at most: twice what the page shows
LEAST = 64  # pixels of the longer side: smaller images are enlarged
QUALITY = 82
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
_EXPECTED = (
    "expected a column of the tables of labels, or a path with fields: images/{side}/{row:06d}.jpg "
    "(side, row, id, cam, key, or a column)"
)


class Images:
    """Where the images of a result are.

    Parameters
    ----------
    template : str
        A path with fields in braces: ``side`` ("query" or "gallery"), ``row`` (from 0), ``id``,
        ``cam``, ``key``, or any column of the tables of labels; without braces, a column.
    inputs : Inputs

    Raises
    ------
    OptionError
        If a field is no such thing, or can't be written as its format says.
    InputError
        If a column can't be read.
    """

    def __init__(self, template: str, inputs: Inputs) -> None:
        self._template = template if "{" in template else f"{{{template}}}"
        try:
            parts = list(Formatter().parse(self._template))
        except ValueError as error:
            raise OptionError(f"--images is {template!r}: {error}; {_EXPECTED}") from error
        fields = [name for _, name, _, _ in parts if name is not None]
        if not fields or any(not name or set(name) & set(".[]") for name in fields):
            raise OptionError(f"--images is {template!r}; {_EXPECTED}")
        start = parts[0][0]
        self._root = (os.path.dirname(start) or ".") if start else ""  # noqa: PTH120 - as written
        self._labels = inputs.labels
        self._columns = {side: _columns(fields, inputs, side) for side in SIDES}
        self._read = cache(self._thumbnail)
        self.path("query", 0)

    def path(self, side: str, row: int) -> Path:
        """Return where the image of a query or gallery item should be."""
        values: JsonObject = {"side": side, "row": row}
        values |= {name: column[row].item() for name, column in self._columns[side].items()}
        try:
            return Path(self._template.format(**values))
        except (ValueError, KeyError, IndexError, AttributeError) as error:
            raise OptionError(
                f"--images {self._template!r} can't be written for row {row} of the {side} "
                f"({error}); {_EXPECTED}"
            ) from error

    def label(self, side: str, row: int) -> str:
        """Return identity and camera."""
        labels = self._labels[side]
        cam = "" if labels.cam is None else f", cam {labels.cam[row]}"
        return f"id {labels.id[row]}{cam}"

    def thumbnail(self, side: str, row: int) -> tuple[str, str]:
        """Return an image as a data URI, and why there is none; one of them is empty."""
        return self._read(self.path(side, row))

    def _thumbnail(self, path: Path) -> tuple[str, str]:
        try:
            # Links are followed first: one may lead out, too.
            if self._root and not path.resolve().is_relative_to(Path(self._root).resolve()):
                return "", f"{path} leads out of {self._root}"
            if not path.is_file():
                return "", f"{path} is not there"
            return _data_uri(path), ""
        except Exception as error:  # whatever a broken file makes of its decoder
            return "", f"{path} is no image that can be read ({type(error).__name__})"


def _columns(fields: Sequence[str], inputs: Inputs, side: str) -> Mapping[str, AnyArray]:
    """Read the columns of labels that a template names."""
    held = inputs.labels[side].columns
    more = [name for name in dict.fromkeys(fields) if name not in (*held, "side", "row")]
    if more and side not in inputs.tables:
        raise InputError(
            f"--images names the column {more[0]}, and the labels of the {side} are arrays, not a "
            f"table: {_EXPECTED}"
        )
    columns = held
    if more:
        text = (*KNOWN_COLUMNS, *more)  # a name such as 0001 stays one
        read = read_label_table(inputs.tables[side], text=text, more=more).columns
        columns = {**read, **held}
    return {name: columns[name] for name in fields if name in columns}


def _data_uri(path: Path) -> str:
    """Return a file as a small JPEG within a data URI."""
    from PIL import Image, ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a file that unpacks to more than memory holds
        with Image.open(path, formats=FORMATS) as opened:
            opened.draft("RGB", SIZE)
            image = ImageOps.exif_transpose(opened).convert("RGB")
    image.thumbnail(SIZE)
    times = LEAST // max(image.size)
    if times > 1:
        image = image.resize((image.width * times, image.height * times), Image.Resampling.NEAREST)
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


@dataclass(frozen=True)
class Pictures:
    """Images of each run, and ranked lists by run and query."""

    images: Mapping[str, Images]
    lists: Mapping[str, Mapping[int, RankedList]]

    @classmethod
    def of(cls, groups: Sequence[Results], template: str, queries: int, top: int) -> Pictures:
        """Return those of the hardest queries of results, in groups on the same queries.

        `template` is where images are; each list has `top` items.
        """
        images: dict[str, Images] = {}
        lists: dict[str, dict[int, RankedList]] = {}
        for group in groups:
            chosen = hardest_queries(group, queries)
            for name, result in group.items():
                inputs = reopen(result, name)
                images[name] = Images(template, inputs)
                ranked = nearest_items(result, inputs, chosen, top, name)
                lists[name] = dict(zip(chosen, ranked, strict=True))
        return cls(images, lists)


def hardest_queries(results: Results, most: int) -> list[int]:
    """Return the queries of Q+ of the lowest AP, by its mean over results on the same queries.

    Equal ones are in the order of the queries. Of lists of neighbours it is the least AP that
    they allow.
    """
    mean: FloatArray = np.mean([query_scores(one)[0] for one in results.values()], axis=0)
    known = np.flatnonzero(~np.isnan(mean))
    hardest: list[int] = known[np.argsort(mean[known], kind="stable")][:most].tolist()
    return hardest


def queries_table(results: Results, queries: Sequence[int]) -> Table:
    """Return a row a query: its labels, and what each result makes of it."""
    first = next(iter(results.values()))
    columns = {name: first.columns[name] for name in LABELS if name in first.columns}
    heads = ["Query", *columns, "positives"]
    for name in results:
        of = f" {shortened(name)}" if len(results) > 1 else ""
        heads += [f"AP{of}", f"First rank{of}"]
    scores = [query_scores(result) for result in results.values()]
    rows = []
    for query in queries:
        labels = (Cell(str(values[query]), wraps=True) for values in columns.values())
        cells: list[object] = [query, *labels, f"{first.statistics.positives[query]:,}"]
        for precision, rank in scores:
            cells += [f"{100 * precision[query]:.2f} %", f"{rank[query]:,g}"]
        rows.append(cells)
    return Table.of(heads, rows)


def tau_max_distance(result: Evaluation) -> float | None:
    """Return the distance that τ_max of a result stands for; None where it has none."""
    tau = result.metrics.scalars.get("tau_max", math.nan)
    thresholds = result.statistics.thresholds
    if math.isnan(tau) or not len(thresholds):
        return None
    return float(thresholds[round(tau * (len(thresholds) - 1))])
