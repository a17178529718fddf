"""Write the demonstration data: 1,797 images of handwritten digits, queries and gallery.

Real data that need no download: scikit-learn comes with them (a part of the UCI set "Optical
Recognition of Handwritten Digits"). An image's 64 pixels are its features, its digit is its
identity. There are no cameras. Every 9th image is a query. The digits 8 and 9 are withheld
from the gallery, so that their queries are strangers there: the open set.

Usage: prepare_digits.py FOLDER
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from sklearn.datasets import load_digits

EVERY = 9
WITHHELD = (8, 9)
CHUNK_ROWS = 256


def prepare(folder: Path) -> None:
    """Write features (Zarr) and labels (CSV) of both sides into a folder."""
    digits = load_digits()
    features = digits.data.astype(np.float32)
    is_query = np.arange(len(features)) % EVERY == 0
    in_gallery = ~is_query & ~np.isin(digits.target, WITHHELD)
    folder.mkdir(parents=True, exist_ok=True)
    for side, chosen in (("query", is_query), ("gallery", in_gallery)):
        write_features(folder / f"{side}.zarr", features[chosen])
        write_labels(folder / f"{side}.csv", digits.target[chosen], np.flatnonzero(chosen))
    print(
        f"{folder}: {is_query.sum()} queries, {in_gallery.sum()} gallery images; digits "
        f"{' and '.join(str(digit) for digit in WITHHELD)} are not in the gallery"
    )


def write_features(path: Path, features: npt.NDArray[np.float32]) -> None:
    """Write features as a Zarr v3 array, in chunks of rows."""
    array = zarr.create_array(
        path,
        shape=features.shape,
        chunks=(CHUNK_ROWS, features.shape[1]),
        dtype=features.dtype,
        config={"write_empty_chunks": True},
        overwrite=True,
    )
    array[...] = features


def write_labels(path: Path, ids: npt.NDArray[Any], keys: npt.NDArray[np.int64]) -> None:
    """Write a table of labels: identity, and which image of the set it is."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "key"])
        writer.writerows(zip(ids.tolist(), keys.tolist(), strict=True))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: prepare_digits.py FOLDER")
    prepare(Path(sys.argv[1]))
