"""DataArrays of xarray: of NumPy, of Dask, or of a file that is read by blocks."""

from __future__ import annotations

from typing import Any

from streameval.arrays.array import Array, Spans, native_dtype, slices
from streameval.arrays.dask_array import DaskArray
from streameval.arrays.memory import in_memory
from streameval.arrays.objects import ObjectArray
from streameval.typing import AnyArray


def open_data_array(held: Any, name: str | None) -> Array:
    """Open what a DataArray holds."""
    if held.chunks is not None:
        return DaskArray(held.data, name)
    if getattr(held.variable, "_in_memory", False):  # nothing public tells; else read by blocks
        return in_memory(held.values, name)
    return LazyDataArray(held, name)


class LazyDataArray(ObjectArray):
    """A DataArray of a file, of which nothing has been read: each block is."""

    kind = "xarray.DataArray"

    def __init__(self, held: Any, name: str | None = None) -> None:
        super().__init__(held, name)
        self.shape = tuple(held.shape)
        self.dtype = native_dtype(self.uri, self.shape, held.dtype)
        preferred = held.encoding.get("preferred_chunks", {})
        own = zip(held.dims, (1, *self.shape[1:]), strict=True)
        self.chunks = tuple(preferred.get(dim, size) for dim, size in own)

    def _fill(self, out: AnyArray, spans: Spans) -> None:
        out[...] = self._held[slices(spans)].values
