"""The list of metrics. A new one is a declaration beside its function, and an entry here."""

from __future__ import annotations

from streameval.metrics import (
    cutoffs,
    gom,
    matching,
    openset,
    retrieval,
    single_shot,
    verification,
)
from streameval.metrics.metric import Metric

METRICS: tuple[Metric, ...] = (
    retrieval.CMC,
    single_shot.CMC_SAMPLED,
    retrieval.MAP,
    retrieval.MINP,
    retrieval.MRR,
    retrieval.MEDIAN_RANK,
    cutoffs.AP_AT_K,
    cutoffs.PRECISION_AT_K,
    cutoffs.PRECISION_AT_K_MIN,
    cutoffs.RECALL_AT_K,
    cutoffs.RECALL_AT_PERCENT,
    cutoffs.R_PRECISION,
    cutoffs.MAP_AT_R,
    cutoffs.NDCG_AT_K,
    retrieval.PRECISION_AT_RECALL,
    gom.MVP_MAX,
    gom.MREP_MAX,
    gom.TAU_MAX,
    gom.MREP,
    gom.MFR,
    gom.TAU_NZ,
    openset.DIR_FAR,
    openset.FNIR_FPIR,
    openset.DIR_AUC,
    openset.TTR_FTR,
    verification.TAR_FAR,
    verification.FNMR_FMR,
    verification.EER,
    verification.AUC,
    verification.F1_BEST,
    matching.PRECISION,
    matching.RECALL,
    matching.F1,
    matching.F1_MAX,
    matching.FMR,
    matching.FNMR,
)
