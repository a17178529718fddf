"""What tests of re-ranking use beside the public names."""

from streameval.reranking.exponential import exponentials as exponentials
