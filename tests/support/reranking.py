"""What tests of re-ranking use beside the public names."""

from streameval.planning import search as search_module
from streameval.reranking import alone as alone_module
from streameval.reranking import copies as copies_module
from streameval.reranking import greatest as greatest_module
from streameval.reranking import indexed as indexed_module
from streameval.reranking import reranked as reranked_module
from streameval.reranking.exponential import exponentials as exponentials

__all__ = [
    "alone_module",
    "copies_module",
    "exponentials",
    "greatest_module",
    "indexed_module",
    "reranked_module",
    "search_module",
]
