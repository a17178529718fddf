"""Masks: pairs that are not to be counted are overwritten with +inf in the tile."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from streameval.kernels.edges import first_not_below
from streameval.kernels.tiles import FloatTile


@numba.njit(nogil=True, cache=True)
def mask_listed(  # type: ignore[no-untyped-def]
    tile, item, indptr, listed, masked
) -> int:
    """Overwrite listed pairs of a tile with +inf; return how many of them were finite.

    Parameters
    ----------
    tile : [m, n] float32 or float64, written
    item : [n] int64
        Gallery index of each column, ascending.
    indptr : [m + 1] int64
        Where each of these queries' listed pairs begin.
    listed : [L] int64
        Gallery indices, ascending within a query; those that are no column are passed over.
    masked : [L] bool
        Which of the listed pairs to overwrite.
    """
    finite = 0
    if tile.shape[1] == 0:
        return finite
    for i in range(tile.shape[0]):
        own = listed[indptr[i] : indptr[i + 1]]
        first = indptr[i] + first_not_below(own, item[0])
        for entry in range(first, indptr[i + 1]):
            if listed[entry] > item[-1]:
                break
            k = first_not_below(item, listed[entry])
            if masked[entry] and item[k] == listed[entry]:
                finite += np.isfinite(tile[i, k])
                tile[i, k] = np.inf
    return finite


def column_offsets(
    base: FloatTile, junk: npt.NDArray[np.bool_], camera: npt.NDArray[np.int32] | None, cameras: int
) -> FloatTile:
    """Return what is added to each column of a tile: +inf for items ruled out.

    Parameters
    ----------
    base : [n] float32 or float64
        The offset of items that take part.
    junk : [n] bool
        Items that take part for no query.
    camera : [n] int32, optional
        Camera code of each item, where queries ignore items of their own camera.
    cameras : int
        Number of camera codes; 0 where cameras play no role.

    Returns
    -------
    [max(cameras, 1), n] of the dtype of `base`
        Row c serves the queries of camera c.
    """
    offset: FloatTile = np.repeat(base[None], max(cameras, 1), axis=0)
    offset[:, junk] = np.inf
    if camera is not None:
        for code in range(cameras):
            offset[code, camera == code] = np.inf
    return offset
