"""What tests use of `streameval.kernels` beside its public names."""

from streameval.kernels import matrix_unit as matrix_unit
from streameval.kernels import sieve_units as sieve_units
from streameval.kernels import word_unit as word_unit
from streameval.kernels.caches import CALLED as CALLED
from streameval.kernels.caches import KEPT as KEPT
from streameval.kernels.caches import forget_older_kernels as forget_older_kernels
from streameval.kernels.caches import pausing_for_compilation as pausing_for_compilation
from streameval.kernels.cells import bin_row as bin_row
from streameval.kernels.cells import quantise as quantise
from streameval.kernels.edges import Positives as Positives
from streameval.kernels.edges import threshold_distances as threshold_distances
from streameval.kernels.features import FeatureColumns as FeatureColumns
from streameval.kernels.filters import FineColumns as FineColumns
from streameval.kernels.filters import Operands as Operands
from streameval.kernels.filters import ProductColumns as ProductColumns
from streameval.kernels.grids import ABOVE as ABOVE
from streameval.kernels.grids import CELLS as CELLS
from streameval.kernels.grids import LAST as LAST
from streameval.kernels.grids import RUN as RUN
from streameval.kernels.grids import SEARCH as SEARCH
from streameval.kernels.grids import WAYS as WAYS
from streameval.kernels.grids import cell_of as cell_of
from streameval.kernels.grids import lay_grid as lay_grid
from streameval.kernels.grids import span_grid as span_grid
from streameval.kernels.limits import Limits as Limits
from streameval.kernels.limits import Reach as Reach
from streameval.kernels.limits import limits_of as limits_of
from streameval.kernels.limits import line_of as line_of
from streameval.kernels.limits import up_to as up_to
from streameval.kernels.marks import MarkColumns as MarkColumns
from streameval.kernels.marks import MarkTile as MarkTile
from streameval.kernels.matrix_unit import ITEMS as ITEMS
from streameval.kernels.matrix_unit import QUERIES as QUERIES
from streameval.kernels.matrix_unit import supported as supported
from streameval.kernels.multiplier import FEW_ROWS as FEW_ROWS
from streameval.kernels.multiplier import VARIABLE as VARIABLE
from streameval.kernels.multiplier import Product as Product
from streameval.kernels.multiplier import _warn_once as warn_once
from streameval.kernels.multiplier import blas_kernels as blas_kernels
from streameval.kernels.multiplier import blas_product as blas_product
from streameval.kernels.multiplier import choose_multiplier as choose_multiplier
from streameval.kernels.multiplier import chosen_instructions as chosen_instructions
from streameval.kernels.multiplier import chosen_unit as chosen_unit
from streameval.kernels.multiplier import chosen_way as chosen_way
from streameval.kernels.multiplier import description as description
from streameval.kernels.multiplier import digit_product as digit_product
from streameval.kernels.multiplier import has_avx2 as has_avx2
from streameval.kernels.multiplier import has_vnni as has_vnni
from streameval.kernels.multiplier import item_bytes as item_bytes
from streameval.kernels.multiplier import sieve_description as sieve_description
from streameval.kernels.multiplier import sieve_of as sieve_of
from streameval.kernels.multiplier import slice_bytes as slice_bytes
from streameval.kernels.multiplier import warn_of_slow_kernels as warn_of_slow_kernels
from streameval.kernels.multiplier import word_product as word_product
from streameval.kernels.panels import MOST_COLUMNS as MOST_COLUMNS
from streameval.kernels.panels import Panels as Panels
from streameval.kernels.panels import multiply as multiply
from streameval.kernels.panels import panels_of as panels_of
from streameval.kernels.processor import AVX512 as AVX512
from streameval.kernels.processor import CORETYPE as CORETYPE
from streameval.kernels.processor import better_kernels as better_kernels
from streameval.kernels.query_block import QueryBlock as QueryBlock
from streameval.kernels.selection import BEYOND as BEYOND
from streameval.kernels.selection import few_up_to as few_up_to
from streameval.kernels.selection import limit_of as limit_of
from streameval.kernels.selection import select as select
from streameval.kernels.selection import selects as selects
from streameval.kernels.sieve import LOOPS as LOOPS
from streameval.kernels.sieve import NARROW_VECTORS as NARROW_VECTORS
from streameval.kernels.sieve import UNIT as UNIT
from streameval.kernels.sieve import VECTORS as VECTORS
from streameval.kernels.sieve import Digits as Digits
from streameval.kernels.sieve import Panels as Panels1
from streameval.kernels.sieve import mark as mark
from streameval.kernels.sieve import panel_bytes as panel_bytes
from streameval.kernels.tiles import Columns as Columns
from streameval.kernels.tiles import Tile as Tile
from streameval.kernels.word_unit import SLICE as SLICE
from streameval.kernels.words import NARROW_WORDS as NARROW_WORDS
from streameval.kernels.words import PLAIN_WORDS as PLAIN_WORDS
from streameval.kernels.words import WIDE_WORDS as WIDE_WORDS
from streameval.kernels.words import Instructions as Instructions
from streameval.kernels.words import Words as Words
from streameval.kernels.words import multiply_words_of as multiply_words_of
from streameval.kernels.words import signs_of as signs_of
from streameval.kernels.words import steps_of as steps_of
from streameval.kernels.words import word_bytes as word_bytes

__all__ = [
    "ABOVE",
    "AVX512",
    "BEYOND",
    "CALLED",
    "CELLS",
    "CORETYPE",
    "FEW_ROWS",
    "ITEMS",
    "KEPT",
    "LAST",
    "LOOPS",
    "MOST_COLUMNS",
    "NARROW_VECTORS",
    "NARROW_WORDS",
    "PLAIN_WORDS",
    "QUERIES",
    "RUN",
    "SEARCH",
    "SLICE",
    "UNIT",
    "VARIABLE",
    "VECTORS",
    "WAYS",
    "WIDE_WORDS",
    "Columns",
    "Digits",
    "FeatureColumns",
    "FineColumns",
    "Instructions",
    "Limits",
    "MarkColumns",
    "Operands",
    "Panels",
    "Panels1",
    "Positives",
    "Product",
    "ProductColumns",
    "QueryBlock",
    "Reach",
    "Tile",
    "Words",
    "better_kernels",
    "bin_row",
    "blas_kernels",
    "blas_product",
    "cell_of",
    "choose_multiplier",
    "chosen_instructions",
    "chosen_unit",
    "chosen_way",
    "description",
    "digit_product",
    "few_up_to",
    "forget_older_kernels",
    "has_avx2",
    "has_vnni",
    "item_bytes",
    "lay_grid",
    "limit_of",
    "limits_of",
    "line_of",
    "mark",
    "matrix_unit",
    "multiply",
    "multiply_words_of",
    "panel_bytes",
    "panels_of",
    "quantise",
    "select",
    "selects",
    "sieve_description",
    "sieve_of",
    "sieve_units",
    "signs_of",
    "slice_bytes",
    "span_grid",
    "steps_of",
    "supported",
    "threshold_distances",
    "up_to",
    "warn_of_slow_kernels",
    "warn_once",
    "word_bytes",
    "word_product",
    "word_unit",
]
