"""What tests of re-ranking use beside the public names."""

from streameval.reranking import alone as alone_module
from streameval.reranking import copies as copies_module
from streameval.reranking import everyone as everyone_module
from streameval.reranking.exponential import exponentials as exponentials

__all__ = ["alone_module", "copies_module", "everyone_module", "exponentials"]
