"""Presets: how other tools read a ranking, each under one name.

A preset is a protocol and the options that reproduce a tool. Beside each stands where that tool
does so; ties are left to an unstable sort by most of them, so that ``stable`` is what they do on
average, and equal only where there is no tie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from streameval.errors import OptionError


@dataclass(frozen=True)
class Preset:
    """The conventions of one tool.

    Attributes
    ----------
    name : str
    protocol : str
        Name of the protocol: which pairs are ignored, and how CMC is read.
    metrics : tuple of str
        What the tool reports, under our names.
    options : mapping of str to value
        Options of `MetricOptions` that differ from the default, or that the tool stands for.
    junk_ids : tuple of int or str, optional
        In place of the protocol's.
    range : {"minmax"}, optional
        What τ = 0 and 1 stand for, where the tool reads τ.
    remark : str
        What else differs, and no option reproduces.
    """

    name: str
    protocol: str
    metrics: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    junk_ids: tuple[int | str, ...] | None = None
    range: Literal["minmax"] | None = None
    remark: str = ""


_CMC = ("CMC@1", "CMC@5", "CMC@10", "CMC@20")
_GOM = ("mVP_max", "mReP_max", "tau_max", "MREP", "MFR", "tau_nz")

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        # torchreid/metrics/rank.py, eval_market1501: same identity and camera removed; first
        # match; AP = Σ precision at hits / hits; np.argsort, which is not stable. Junk (-1) is
        # left out where the data set is read.
        Preset("torchreid", "market1501", (*_CMC, "mAP"), {"ap": "step", "ties": "stable"}),
        # fastreid/evaluation/rank.py, eval_market1501: as torchreid, and INP = G / last rank.
        Preset(
            "fastreid",
            "market1501",
            ("CMC@1", "CMC@5", "CMC@10", "mAP", "mINP"),
            {"ap": "step", "ties": "stable"},
            remark="its TPR@FPR takes distances for scores: inverted, and not reproduced",
        ),
        # reid/evaluators.py: the first column, by which models are chosen, is cmc() with
        # first_match_break=False; evaluation_metrics/ranking.py, mean_ap: average_precision_score
        # of scikit-learn (0.19 and later), to which equal distances are one threshold.
        Preset(
            "open-reid",
            "allshots",
            ("CMC@1", "CMC@5", "CMC@10", "mAP"),
            {"ap": "threshold", "ties": "stable"},
            remark="prints CMC under two more protocols: market1501 and cuhk03",
        ),
        # compute_AP.m of the Market-1501 baseline, after Oxford Buildings: the mean of two
        # precisions, the first 1; junk images skipped; MATLAB's sort is stable.
        Preset(
            "market-matlab", "market1501", (*_CMC, "mAP"), {"ap": "trapezoid", "ties": "stable"}
        ),
        # GOM paper, §5 (Eq. 5 as printed; step 1: distances normalised to [0, 1]; B: footnote 1).
        Preset(
            "gom-paper",
            "market1501",
            _GOM,
            {"vp": "equation", "ap": "step", "false_rate_budget": 3000},
            range="minmax",
        ),
        # GOM.py of the authors (YuanXinCherry/Person-reID-Evaluation), which their tables come
        # from: evaluate_closed stops counting returned items at the last match, and divides by
        # all queries; norm_distance is minmax over the whole matrix; ignored pairs are not
        # removed but set to distance 1.
        Preset(
            "gom-code",
            "market1501",
            _GOM,
            {"vp": "reference", "ap": "step", "false_rate_budget": 3000},
            range="minmax",
            remark="it divides by all queries, also those without a positive, normalises by "
            "the range of all pairs, also the ignored, and returns these at tau = 1",
        ),
        # oml/functional/metrics.py, calc_retrieval_metrics: cmc, precision and map at 5, the
        # latter two by min(k, G); no cameras, no junk (but each query's own image, where it is
        # in the gallery: --self-match); torch.topk, which is not stable.
        Preset(
            "oml",
            "no-camera",
            ("CMC@5", "P@5/min", "mAP@5/min"),
            {"ap": "step", "ties": "stable"},
            junk_ids=(),
            remark="its fnmr@fmr takes a percentile of the impostors, interpolated, as threshold",
        ),
    )
}
"""Presets by name: the conventions of other tools."""

EQUIVALENTS: Mapping[str, Mapping[str, str]] = {
    "scikit-learn": {
        "average_precision_score": "mAP --ap threshold",  # equal scores are one threshold
        "ndcg_score(k=10)": "nDCG@10 --ties expected",  # the mean over orders of equal scores
        "precision_score": "precision/micro@tau=0.5",
        "recall_score": "recall/micro@tau=0.5",
        "f1_score": "F1/micro@tau=0.5",
        "roc_auc_score": "AUC",
        "roc_curve": "TAR|FAR=0.1",
    },
    "ranx": {
        "hit_rate@5": "CMC@5",
        "map": "mAP",
        "mrr": "MRR",
        "map@10": "mAP@10/total",  # its MAP@k is by all relevant documents
        "precision@10": "P@10",
        "recall@10": "recall@10",
        "r-precision": "R-precision",
        "ndcg@10": "nDCG@10",
    },
    "torchmetrics": {
        "retrieval_average_precision": "mAP",
        "retrieval_average_precision(top_k=10)": "mAP@10/hits",  # the mean over the hits within k
        "retrieval_precision(top_k=10)": "P@10",
        "retrieval_recall(top_k=10)": "recall@10",
        "retrieval_r_precision": "R-precision",
        "retrieval_reciprocal_rank": "MRR",
        "retrieval_hit_rate(top_k=5)": "CMC@5",
        "retrieval_normalized_dcg(top_k=10)": "nDCG@10",
    },
    "pytorch-metric-learning": {
        "precision_at_1": "P@1",
        "mean_reciprocal_rank": "MRR",
        "r_precision": "R-precision",
        "mean_average_precision_at_r": "MAP@R",
        "mean_average_precision": "mAP",
    },
}
"""What metrics of general packages are called here, with the option that reads as they do.

Without cameras and junk: they know neither. The tests compare the values with these packages.
"""


def find_preset(name: str) -> Preset:
    """Return the preset of that name.

    Raises
    ------
    OptionError
        If there is none; the known ones are listed.
    """
    if not isinstance(name, str) or name not in PRESETS:
        raise OptionError(f"unknown preset {name!r}; known presets: {', '.join(PRESETS)}")
    return PRESETS[name]
