"""Results: values, curves and the per-query table of a run; saved, loaded and compared."""

from streameval.result.evaluation import Evaluation, Results

__all__ = ["Evaluation", "Results"]
