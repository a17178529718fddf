"""Synthetic inputs that look like a re-ID model's: identities are clusters, positives mostly near.

Features have a decaying spectrum, as trained models have: cosine similarities of strangers
scatter around 0 by about 0.1, not by 1/√D. Most images lie near the centre of their identity, a
tenth lie far off. All is written in pieces, so that a file may exceed memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

import streameval as se
from benchmarks.figure import Skip

Rows = npt.NDArray[Any]
Transform = Callable[[Rows, np.random.Generator], Rows]
Codec = Literal["lz4", "uncompressed"]

IMAGES_PER_IDENTITY = 16
ABSENT = 0.05  # share of the identities of queries that the gallery lacks
CAMERAS = 8
PIECE = 25_000  # rows generated at a time
PIECE_BYTES = 128 << 20  # of a stored matrix, generated at a time
MARKET1501 = Path(__file__).parents[2] / "shared" / "data" / "market1501-labels"
POOL = 1 << 20  # values by which rows of a stored matrix are shifted against each other


@dataclass(frozen=True)
class FeatureSet:
    """Features on disk, and their labels."""

    query: Path
    gallery: Path
    labels: Mapping[str, se.Labels]

    def source(self, metric: Any) -> se.Features:
        """Return them as a source."""
        return se.Features(self.query, self.gallery, metric)


def make_labels(
    queries: int, gallery: int, images: int = IMAGES_PER_IDENTITY
) -> dict[str, se.Labels]:
    """Return labels of both sides, as `evaluate` takes them."""
    rng = np.random.default_rng(0)
    identities = max(gallery // images, 2)
    return {
        "query": se.Labels(
            rng.integers(0, int(identities * (1 + ABSENT)) + 1, queries),
            rng.integers(0, CAMERAS, queries),
        ),
        "gallery": se.Labels(
            rng.integers(0, identities, gallery), rng.integers(0, CAMERAS, gallery)
        ),
    }


def market1501_labels() -> dict[str, se.Labels]:
    """Return the labels of Market-1501, junk images included."""
    if not MARKET1501.is_dir():
        raise Skip("the labels of Market-1501 are not at hand")
    return {
        side: se.read_labels(MARKET1501 / f"{side}_id.npy", MARKET1501 / f"{side}_cam.npy")
        for side in ("query", "gallery")
    }


def save_labels(folder: Path, labels: Mapping[str, se.Labels]) -> dict[str, str]:
    """Write label columns as .npy; return their paths, named ``query_id`` and so on."""
    paths = {}
    for side, own in labels.items():
        for column in ("id", "cam"):
            path = folder / f"{side}_{column}-{len(own)}.npy"
            np.save(path, getattr(own, column))
            paths[f"{side}_{column}"] = str(path)
    return paths


def unit(rows: Rows, _: np.random.Generator) -> Rows:
    """Bring every row to length 1."""
    scaled: Rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return scaled


def half(rows: Rows, rng: np.random.Generator) -> Rows:
    """Store unit vectors as float16."""
    return unit(rows, rng).astype(np.float16)


def make_features(
    folder: Path,
    queries: int,
    gallery: int,
    width: int,
    *,
    name: str = "unit",
    transform: Transform = unit,
    duplicated: bool = False,
    images: int = IMAGES_PER_IDENTITY,
    spread: float = 1.0,
) -> FeatureSet:
    """Write features of queries and gallery, unless files of this name and shape are there.

    Parameters
    ----------
    folder : Path
    queries, gallery, width : int
    name : str
        Of the transform; part of the file names.
    transform : callable, optional
        What the model makes of ordinary rows.
    duplicated : bool
        Whether the second half of the gallery repeats the first.
    images : int
        Of an identity; another number than the usual one is to have another name.
    spread : float
        How far images lie from the centre of their identity; likewise.
    """
    labels = make_labels(queries, gallery, images=images)
    if duplicated:
        half = -(-gallery // 2)
        own = labels["gallery"]
        assert own.cam is not None
        labels["gallery"] = se.Labels(
            np.tile(own.id[:half], 2)[:gallery], np.tile(own.cam[:half], 2)[:gallery]
        )
    identities = int(max(gallery // images, 2) * (1 + ABSENT)) + 1
    paths = {}
    for seed, (side, own) in enumerate(labels.items(), start=1):
        paths[side] = folder / f"{side}-{name}-{queries}x{gallery}x{width}.npy"
        if not paths[side].exists():
            repeats = 2 if duplicated and side == "gallery" else 1
            pieces = (
                piece
                for _ in range(repeats)
                for piece in _feature_pieces(
                    own.id[: -(-len(own) // repeats)], identities, width, seed, transform, spread
                )
            )
            _write_npy(paths[side], pieces, (len(own), width))
    return FeatureSet(paths["query"], paths["gallery"], labels)


def _feature_pieces(
    ids: Rows, identities: int, width: int, seed: int, transform: Transform, spread: float
) -> Iterator[Rows]:
    spectrum = ((1 + np.arange(width) / 8) ** -0.5).astype(np.float32)
    centres = np.random.default_rng(0).standard_normal((identities, width), dtype=np.float32)
    rng = np.random.default_rng(seed)
    for start in range(0, len(ids), PIECE):
        own = ids[start : start + PIECE]
        far = np.where(rng.random(len(own)) < 0.1, 2.0, 0.7).astype(np.float32)
        rows = rng.standard_normal((len(own), width), dtype=np.float32)
        rows *= spread * far[:, None]
        rows += centres[own]
        rows *= spectrum
        yield transform(rows, rng)


def _write_npy(path: Path, pieces: Iterator[Rows], shape: tuple[int, int]) -> None:
    """Write an .npy file piece by piece; it has its name only once it is complete."""
    part = path.with_suffix(".part")
    left = shape[0]
    with part.open("wb") as file:
        for piece in pieces:
            if left == shape[0]:
                described = np.lib.format.dtype_to_descr(piece.dtype)
                header = {"descr": described, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, header)
            piece[:left].tofile(file)
            left -= min(len(piece), left)
    part.rename(path)


def near_and_far(labels: Mapping[str, se.Labels]) -> npt.NDArray[np.float32]:
    """Return a distance matrix [Q, G] float32 of these labels, in memory."""
    matrix = np.empty((len(labels["query"]), len(labels["gallery"])), np.float32)
    for rows, columns, values in _distance_pieces(labels, (64, matrix.shape[1])):
        matrix[slice(*rows), slice(*columns)] = values
    return matrix


def make_distances(
    path: Path,
    labels: Mapping[str, se.Labels],
    chunks: tuple[int, int],
    codec: Codec,
    *,
    dtype: str = "float32",
) -> None:
    """Write a Zarr matrix of distances; as uint8, the range [0, 2] in 255 steps.

    Parameters
    ----------
    path : Path
    labels : dict of str to Labels
    chunks : (int, int)
    codec : {"lz4", "uncompressed"}
    dtype : {"float32", "uint8"}
    """
    import zarr
    from zarr.codecs import BloscCodec

    shape = len(labels["query"]), len(labels["gallery"])
    chunks = min(chunks[0], shape[0]), min(chunks[1], shape[1])
    compressors = BloscCodec(cname="lz4", shuffle="shuffle") if codec == "lz4" else None
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        array = zarr.create_array(
            path,
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            compressors=compressors,
            config={"write_empty_chunks": True},
        )
        columns = max(PIECE_BYTES // (4 * chunks[0] * chunks[1]), 1) * chunks[1]
        for rows, items, values in _distance_pieces(labels, (chunks[0], columns)):
            if dtype == "uint8":
                values = np.clip(np.rint(values * 127.5), 0, 255).astype(np.uint8)
            array[slice(*rows), slice(*items)] = values


def _distance_pieces(
    labels: Mapping[str, se.Labels], piece: tuple[int, int]
) -> Iterator[tuple[tuple[int, int], tuple[int, int], npt.NDArray[np.float32]]]:
    """Yield rectangles: rows are windows of one pool of noise, which costs little to make."""
    rng = np.random.default_rng(0)
    query, gallery = labels["query"].id, labels["gallery"].id
    order = np.argsort(gallery, kind="stable")
    ranked = gallery[order]
    pool = rng.normal(1.0, 0.12, POOL + len(gallery)).astype(np.float32)
    begin = rng.integers(0, POOL, len(query))
    scale = rng.uniform(0.9, 1.1, len(query)).astype(np.float32)
    for top in range(0, len(query), piece[0]):
        bottom = min(top + piece[0], len(query))
        for left in range(0, len(gallery), piece[1]):
            right = min(left + piece[1], len(gallery))
            values = np.empty((bottom - top, right - left), np.float32)
            for i in range(top, bottom):
                np.multiply(pool[begin[i] + left : begin[i] + right], scale[i], out=values[i - top])
                own = order[slice(*np.searchsorted(ranked, [query[i], query[i] + 1]))]
                own = own[(own >= left) & (own < right)]
                near = rng.normal(0.5, 0.15, len(own))
                values[i - top, own - left] = np.abs(near)
            yield (top, bottom), (left, right), np.abs(values)
