"""Images of queries and gallery items as thumbnails within the page."""

from __future__ import annotations

import base64
import io
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

from streameval.errors import InputError, OptionError
from streameval.labels.tables import Texts, read_table
from streameval.protocols.labels import AnyArray, label_column
from streameval.rankings import Inputs

SIZE = 160, 240  # pixels of a thumbnail, at most: twice what the page shows
LEAST = 64  # pixels of the longer side: smaller images are enlarged
QUALITY = 82
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
STANDARD = ("id", "cam", "key")


@dataclass(frozen=True)
class Thumbnail:
    """An image, or why there is none.

    Attributes
    ----------
    src : str
        A data URI; empty where there is none.
    reason : str
    """

    src: str
    reason: str = ""


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
        self._columns = {side: _columns(fields, inputs, side) for side in ("query", "gallery")}
        self._made: dict[Path, Thumbnail] = {}
        self.path("query", 0)

    def path(self, side: str, row: int) -> Path:
        """Return where the image of a query or gallery item should be.

        Raises
        ------
        OptionError
        """
        values: dict[str, Any] = {"side": side, "row": row}
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

    def thumbnail(self, side: str, row: int) -> Thumbnail:
        """Return the image of a query or gallery item; one that can't be read has a reason."""
        path = self.path(side, row)
        if path not in self._made:
            self._made[path] = self._read(path)
        return self._made[path]

    def _read(self, path: Path) -> Thumbnail:
        try:
            if self._root and _leads_out(path, self._root):
                return Thumbnail("", f"{path} leads out of {self._root}")
            if not path.is_file():
                return Thumbnail("", f"{path} is not there")
            return Thumbnail(_data_uri(path))
        except Exception as error:  # whatever a broken file makes of its decoder
            return Thumbnail("", f"{path} is no image that can be read ({type(error).__name__})")


_EXPECTED = (
    "expected a column of the tables of labels, or a path with fields: images/{side}/{row:06d}.jpg "
    "(side, row, id, cam, key, or a column)"
)


def _columns(fields: Sequence[str], inputs: Inputs, side: str) -> Mapping[str, AnyArray]:
    """Read the columns of labels that a template names."""
    held = inputs.labels[side].columns
    known = {name: held[name] for name in fields if name in held}
    more = [name for name in dict.fromkeys(fields) if name not in (*known, "side", "row")]
    absent = [name for name in more if name in STANDARD]
    if absent:
        raise InputError(
            f"--images names {absent[0]}, and the {side} has no {absent[0]}: {_EXPECTED}"
        )
    if not more:
        return known
    if side not in inputs.tables:
        raise InputError(
            f"--images names the column {more[0]}, and the labels of the {side} are arrays, not a "
            f"table: {_EXPECTED}"
        )
    table = read_table(inputs.tables[side], more)
    read = {name: table[name] for name in more}
    texts = {
        name: values.texts() if isinstance(values, Texts) else values
        for name, values in read.items()
    }
    return known | {
        name: label_column(values, f"{inputs.tables[side]} {name}")
        for name, values in texts.items()
    }


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


def _leads_out(path: Path, root: str) -> bool:
    return Path(os.path.relpath(path, root)).parts[:1] == (os.pardir,)
