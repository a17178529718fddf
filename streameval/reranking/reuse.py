"""Encodings that are kept in a folder for later evaluations, each whole or not at all.

    encodings k1=20 k2=6 power=2 DIGEST/
        items, values, begin, greatest    V of all images, and the greatest distance of each query
        encodings.json                    what they are of, and the size and digest of each file

They are written under a hidden name beside, and renamed once all is there. DIGEST is of what they
are of: options, the steps before, and fingerprints of the inputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from streameval.errors import OutputError, warn
from streameval.interruption import held
from streameval.output import TemporaryFolder, as_json, claimed, put_in_place, refused, remove
from streameval.reranking.encoding import Parameters
from streameval.reranking.everyone import Everyone
from streameval.reranking.kept import VALUE, Encodings, KeptRows
from streameval.sources.feature_source import FeatureSource
from streameval.typing import FloatArray, JsonObject

FORMAT = 1
BEGIN, GREATEST, TOLD = "begin", "greatest", "encodings.json"
FILES = ("items", "values", BEGIN, GREATEST)
OFFSET = np.dtype("<i8")

Write = Callable[[TemporaryFolder], KeptRows]


class KeptEncodings:
    """A place for the encodings of some images in a folder.

    Parameters
    ----------
    folder : Path
    features : FeatureSource
        As they are given, before any step.
    everyone : Everyone
        What is encoded.
    parameters : Parameters
    """

    def __init__(
        self, folder: Path, features: FeatureSource, everyone: Everyone, parameters: Parameters
    ) -> None:
        k1, k2, power = parameters.k1, parameters.k2, parameters.power
        text = json.dumps(
            {
                "format": FORMAT,
                "features": features.options(),
                "images": everyone.options(),
                "encodings": {"k1": k1, "k2": k2, "power": power},
                "inputs": {one.name: one.fingerprint() for one in features.inputs()},
            },
            sort_keys=True,
        )
        self._of: JsonObject = json.loads(text)
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        self._place = folder / f"encodings k1={k1} k2={k2} power={power} {digest}"

    def found(self) -> Encodings | None:
        """Return the encodings that are kept; None where there are none, or damaged ones.

        Warns of damaged ones, which `make` replaces.
        """
        if not self._place.exists():
            return None
        try:
            told = json.loads((self._place / TOLD).read_text(encoding="utf-8"))
            wrong = [one for one in FILES if told["files"][one] != _state(self._place / one)]
            if told["of"] != self._of or wrong:
                raise ValueError(f"{', '.join(wrong) or TOLD} is not what was written")
            begin = np.fromfile(self._place / BEGIN, OFFSET).astype(np.int64)
            greatest = np.fromfile(self._place / GREATEST, VALUE).astype(np.float64)
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            warn(f"{self._place} is damaged ({reason}): images are encoded again")
            return None
        return Encodings.of_all(KeptRows(self._place, begin), greatest)

    def make(self, write: Write, greatest: FloatArray) -> Encodings:
        """Write encodings, and keep them; for this evaluation alone where another process does.

        Parameters
        ----------
        write : callable
            Writes V in a folder, and returns it.
        greatest : [Q] float64
        """
        with ExitStack() as claim:
            with _writing():
                self._place.parent.mkdir(parents=True, exist_ok=True)
                try:
                    claim.enter_context(claimed(self._place))
                except OutputError as error:
                    warn(f"{error}; the encodings of this evaluation are not kept")
                    folder = TemporaryFolder(self._place.parent / "encodings")
                    return Encodings.of_all(write(folder), greatest, folder)
                folder = TemporaryFolder(self._place)
            rows = write(folder)
            with _writing():
                self._put_in_place(rows, greatest)
        return Encodings.of_all(KeptRows(self._place, rows.begin), greatest)

    def _put_in_place(self, rows: KeptRows, greatest: FloatArray) -> None:
        """Add to the files of V what belongs to them, and rename their folder."""
        rows.begin.astype(OFFSET).tofile(rows.folder / BEGIN)
        greatest.astype(VALUE).tofile(rows.folder / GREATEST)
        files = {one: _state(rows.folder / one) for one in FILES}
        told = as_json({"of": self._of, "files": files})
        (rows.folder / TOLD).write_text(told, encoding="utf-8")
        with held():
            replaced = put_in_place(rows.folder, self._place)
        if replaced is not None:
            remove(replaced)


def _writing() -> AbstractContextManager[None]:
    return refused("encodings can't be kept on disk", "make room, or give another folder")


def _state(path: Path) -> list[int | str]:
    """Return the size and the digest of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=16)).hexdigest()
    return [path.stat().st_size, digest]
