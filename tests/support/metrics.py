"""What tests use of `streameval.metrics` beside its public names."""

from streameval.metrics.blocks import RankedQueries as RankedQueries
from streameval.metrics.blocks import normalised_thresholds as normalised_thresholds
from streameval.metrics.bounds import ListReading as ListReading
from streameval.metrics.bounds import compute_list_metrics as compute_list_metrics
from streameval.metrics.compute import Metrics as Metrics
from streameval.metrics.compute import compute_metrics as compute_metrics
from streameval.metrics.compute import metrics_of as metrics_of
from streameval.metrics.confidence import Identities as Identities
from streameval.metrics.confidence import Resampling as Resampling
from streameval.metrics.confidence import resampled_values as resampled_values
from streameval.metrics.cutoffs import at_recall as at_recall
from streameval.metrics.expected import ExpectedRanks as ExpectedRanks
from streameval.metrics.expected import expected_inverse as expected_inverse
from streameval.metrics.expected import harmonic_difference as harmonic_difference
from streameval.metrics.gom import gom_scalars as gom_scalars
from streameval.metrics.groups import PositiveCameras as PositiveCameras
from streameval.metrics.groups import metrics_by_camera_pair as metrics_by_camera_pair
from streameval.metrics.groups import metrics_by_group as metrics_by_group
from streameval.metrics.metric import EMPTY as EMPTY
from streameval.metrics.metric import FRACTION as FRACTION
from streameval.metrics.metric import RANK as RANK
from streameval.metrics.metric import Metric as Metric
from streameval.metrics.options import CHOICES as CHOICES
from streameval.metrics.retrieval import precision_recall as precision_recall
from streameval.metrics.selection import METRICS as METRICS
from streameval.metrics.selection import PARTS as PARTS
from streameval.metrics.selection import available_fields as available_fields
from streameval.metrics.selection import find_measure as find_measure
from streameval.metrics.selection import measures_of as measures_of
from streameval.metrics.selection import names_of as names_of
from streameval.metrics.selection import required_fields as required_fields
from streameval.metrics.selection import wanted_measures as wanted_measures
from streameval.metrics.sums import exact_parts as exact_parts
from streameval.metrics.sums import prefix_sums as prefix_sums
from streameval.metrics.sums import rounded as rounded

__all__ = [
    "CHOICES",
    "EMPTY",
    "FRACTION",
    "METRICS",
    "PARTS",
    "RANK",
    "ExpectedRanks",
    "Identities",
    "ListReading",
    "Metric",
    "Metrics",
    "PositiveCameras",
    "RankedQueries",
    "Resampling",
    "at_recall",
    "available_fields",
    "compute_list_metrics",
    "compute_metrics",
    "exact_parts",
    "expected_inverse",
    "find_measure",
    "gom_scalars",
    "harmonic_difference",
    "measures_of",
    "metrics_by_camera_pair",
    "metrics_by_group",
    "metrics_of",
    "names_of",
    "normalised_thresholds",
    "precision_recall",
    "prefix_sums",
    "required_fields",
    "resampled_values",
    "rounded",
    "wanted_measures",
]
