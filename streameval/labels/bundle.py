"""Files that hold a whole evaluation: features and labels of both sides, under known names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streameval.arrays.uri import open_array
from streameval.errors import InputError

NAMES: Mapping[str, str] = {
    "query": "query_f",
    "gallery": "gallery_f",
    "query_ids": "query_label",
    "gallery_ids": "gallery_label",
    "query_cams": "query_cam",
    "gallery_cams": "gallery_cam",
}
"""What the arrays are called in ``pytorch_result.mat`` of Person_reID_baseline_pytorch."""

_OPTIONAL = ("query_cams", "gallery_cams")


def bundle_uris(path: str | Path) -> dict[str, str]:
    """Return the URIs of the arrays in a bundle, by the options that take them.

    Parameters
    ----------
    path : str or Path
        Any file or folder whose arrays have names: .mat, .npz, HDF5, Zarr, .pt.

    Raises
    ------
    InputError
        If it lacks an array; cameras may be absent.
    """
    uris = {option: f"{path}::{name}" for option, name in NAMES.items()}
    for option in NAMES:
        try:
            open_array(uris[option])
        except InputError as error:
            if option in _OPTIONAL:
                del uris[option]
                continue
            if not Path(path).exists():
                raise
            raise InputError(
                f"{error}. One file alone must hold {', '.join(NAMES.values())} (cameras may be "
                "absent); of others give each array by its option"
            ) from error
    return uris
