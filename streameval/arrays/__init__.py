"""Arrays by URI, read by blocks.

`open_array` takes ``path[::key]``, or an array that the caller holds, and returns an `Array`: a
shape, a dtype, and blocks to be read by row and column range. Each format is one file, and one
entry of the tables in `uri.py`, `FORMATS` by suffix and `OBJECTS` by class:

==============  ====================================================================
`npy`           .npy; .npz, ``::key`` naming the member; .fvecs, .ivecs and .bvecs of TEXMEX
`hdf5`          HDF5 by h5py, ``::key`` naming the dataset; .mat, naming the variable; datasets
`zarr_array`    Zarr v2 or v3, a folder or a group and ``::key``, every chunk written; its arrays
`parquet`       a column of a Parquet file, ``::key`` naming it: numbers, texts, or lists
`memory`        an array that is there already, or loaded whole
`pytorch`       .pt and .pth, ``::key`` naming the tensor; tensors
`dask_array`    Dask arrays, computed chunk by chunk
`xarray_array`  DataArrays of xarray, of any of these
`objects`       what array objects have in common that no path leads back to
`composed`      a part of an array; several put together; many files: ``gallery-*.npy``
==============  ====================================================================

`array` holds the contract, and what formats share. What can be known on opening is checked there:
that a file is as long as it says, that every chunk was written, that a dtype can be evaluated.
Nothing is ever unpickled. `remote` reads object stores, `chunk_files` local chunks of Zarr;
X
"""

from streameval.arrays.array import Array
from streameval.arrays.uri import open_array

__all__ = ["Array", "open_array"]
