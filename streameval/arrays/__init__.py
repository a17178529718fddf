"""Arrays by URI, read by blocks.

`open_array` takes ``path[::key]`` (or an array in memory) and returns an `Array`: a shape, a
dtype, and blocks to be read by row and column range. Each format is one file, and one entry
of the table in `uri.py`:

============  ======================================================================
`npy`         .npy; .npz, ``::key`` naming the member; .fvecs, .ivecs and .bvecs of TEXMEX
`hdf5`        HDF5 by h5py, ``::key`` naming the dataset; .mat, naming the variable
`zarr_array`  Zarr v2 or v3, a folder or a group and ``::key``, every chunk written
`parquet`     a column of a Parquet file, ``::key`` naming it: numbers, texts, or lists
`memory`      an array that is there already, or loaded whole, as .pt and .pth by PyTorch
`composed`    a part of an array; several put together; many files: ``gallery-*.npy``
============  ======================================================================

`array` holds the contract, and what formats share. What can be known on opening is checked there:
that a file is as long as it says, that every chunk was written, that a dtype can be evaluated.
Nothing is ever unpickled. `remote` reads object stores; `scattered` reads single rows fast;
`fingerprint` tells whether an array has changed; `convert` writes one to Zarr.
"""

from streameval.arrays.array import Array
from streameval.arrays.uri import open_array

__all__ = ["Array", "open_array"]
