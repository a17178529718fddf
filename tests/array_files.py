"""Writers of arrays, one a format: each writes the values and returns their URI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.io
import zarr


def write_npy(folder: Path, values: np.ndarray) -> str:
    np.save(folder / "a.npy", values)
    return f"{folder}/a.npy"


def write_npz(folder: Path, values: np.ndarray) -> str:
    np.savez(folder / "a.npz", first=np.arange(3), values=values)
    return f"{folder}/a.npz::values"


def write_npz_compressed(folder: Path, values: np.ndarray) -> str:
    np.savez_compressed(folder / "b.npz", first=np.arange(3), values=values)
    return f"{folder}/b.npz::values"


def write_mat(folder: Path, values: np.ndarray) -> str:
    if values.dtype == np.float16:  # MATLAB has none
        values = values.astype(np.float32)
    scipy.io.savemat(folder / "a.mat", {"other": 1, "values": values}, do_compression=True)
    return f"{folder}/a.mat::values"


def write_zarr(folder: Path, values: np.ndarray, name: str = "values", **options: object) -> str:
    if values.dtype.kind in "SU":  # fixed widths are outside the v3 specification
        options.setdefault("zarr_format", 2)
    options.setdefault("chunks", tuple(max(1, size // 3) for size in values.shape))
    array = zarr.create_array(
        folder / "a.zarr",
        name=name,
        shape=values.shape,
        dtype=values.dtype,
        config={"write_empty_chunks": True},
        overwrite=True,
        **options,
    )
    array[...] = values
    return f"{folder}/a.zarr::{name}"


WRITERS = [write_npy, write_npz, write_npz_compressed, write_mat, write_zarr]
