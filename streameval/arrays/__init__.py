"""Arrays by URI, read by blocks.

`open_array` takes ``path[::key]`` (or an array in memory) and returns an `Array`: a shape, a
dtype, and blocks to be read by row and column range. Each format is one file, and one entry
of the table in `uri.py`:

============  ======================================================================
`npy`         .npy; also what reads the stored members of an .npz
`npz`         .npz, ``::key`` naming the member
`mat`         .mat, ``::key`` naming the variable
`zarr_array`  Zarr v2 or v3, a folder or a group and ``::key``; `zarr_chunks` checks
              that every chunk was written
`hdf5`        HDF5 by h5py, ``::key`` naming the dataset
`vecs`        .fvecs, .ivecs and .bvecs of the TEXMEX corpus
`parquet`     a column of a Parquet file, ``::key`` naming it: numbers, texts, or lists
`torch_file`  .pt and .pth by PyTorch, weights only, ``::key`` naming the tensor
`shards`      many files in natural order: ``gallery-*.npy``, or a folder of .npy files
`memory`      an array that is there already, or was loaded whole
`composed`    some rows and columns of an array; several arrays put together
============  ======================================================================

`array` holds the contract, and what formats share. What can be known on opening is checked there:
that a file is as long as it says, that every chunk was written, that a dtype can be evaluated.
Nothing is ever unpickled. `remote` reads object stores; an array of `shape_only` has no data;
`fingerprint` tells whether an array has changed; `convert` writes one to Zarr.
"""

from streameval.arrays.array import Array
from streameval.arrays.uri import open_array

__all__ = ["Array", "open_array"]
