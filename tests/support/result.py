"""What tests use of `streameval.result` beside its public names."""

from streameval.display.table import harmless as harmless
from streameval.result.comparison import holm_adjusted as holm_adjusted
from streameval.result.comparison import p_value as p_value
from streameval.result.same_task import differing as differing
from streameval.result.saved import BEST as BEST
from streameval.result.saved import ENTRIES as ENTRIES
from streameval.result.saved import GROUPS as GROUPS
from streameval.result.saved import POSITIVES as POSITIVES
from streameval.result.saved import ResultFolder as ResultFolder
from streameval.result.saved import check_output as check_output
from streameval.result.stored import StatisticsWriter as StatisticsWriter
from streameval.result.stored import StoredStatistics as StoredStatistics
from streameval.result.stored import load_statistics as load_statistics
from streameval.result.stored import save_statistics as save_statistics

__all__ = [
    "BEST",
    "ENTRIES",
    "GROUPS",
    "POSITIVES",
    "ResultFolder",
    "StatisticsWriter",
    "StoredStatistics",
    "check_output",
    "differing",
    "harmless",
    "holm_adjusted",
    "load_statistics",
    "p_value",
    "save_statistics",
]
