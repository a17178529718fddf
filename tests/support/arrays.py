"""What tests use of `streameval.arrays` beside its public names."""

from streameval.arrays import convert as conversion
from streameval.arrays import digest as digest
from streameval.arrays import fingerprint as fingerprint_module
from streameval.arrays import npy as npy_module
from streameval.arrays import open_array as open_array
from streameval.arrays import remote as remote_module
from streameval.arrays import scattered as scattered_module
from streameval.arrays.array import Array as Array
from streameval.arrays.composed import JoinedArray as JoinedArray
from streameval.arrays.composed import SelectedArray as SelectedArray
from streameval.arrays.composed import natural_order as natural_order
from streameval.arrays.convert import chunks_for as chunks_for
from streameval.arrays.convert import convert as convert
from streameval.arrays.fingerprint import content as content
from streameval.arrays.fingerprint import fingerprint as fingerprint
from streameval.arrays.fingerprint import of_labels as of_labels
from streameval.arrays.identity import unchanging as unchanging
from streameval.arrays.memory import LoadedArray as LoadedArray
from streameval.arrays.memory import MemoryArray as MemoryArray
from streameval.arrays.npy import NpyArray as NpyArray
from streameval.arrays.uri import FORMATS as FORMATS
from streameval.arrays.uri import parse_uri as parse_uri
from streameval.arrays.witness import Readings as Readings
from streameval.arrays.witness import witnessed as witnessed

__all__ = [
    "FORMATS",
    "Array",
    "JoinedArray",
    "LoadedArray",
    "MemoryArray",
    "NpyArray",
    "Readings",
    "SelectedArray",
    "chunks_for",
    "content",
    "conversion",
    "convert",
    "digest",
    "fingerprint",
    "fingerprint_module",
    "natural_order",
    "npy_module",
    "of_labels",
    "open_array",
    "parse_uri",
    "remote_module",
    "scattered_module",
    "unchanging",
    "witnessed",
]
