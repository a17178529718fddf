"""What tests use of `streameval.report` beside its public names."""

from streameval.report.conventions import compare_conventions as compare_conventions
from streameval.report.evaluation import evaluation_blocks as evaluation_blocks
from streameval.report.evaluation import metrics_table as metrics_table
from streameval.report.figures import CAMERAS as CAMERAS
from streameval.report.figures import COLOURS as COLOURS
from streameval.report.figures import CURVES as CURVES
from streameval.report.figures import figure_bytes as figure_bytes
from streameval.report.figures import plot as plot
from streameval.report.inputs import plan_blocks as plan_blocks
from streameval.report.inputs import plan_summary as plan_summary
from streameval.report.ledger import plot_trajectories as plot_trajectories
from streameval.report.page import runs_of as runs_of
from streameval.report.ranked_lists import hardest_queries as hardest_queries
from streameval.report.ranked_lists import tau_max_distance as tau_max_distance
from streameval.report.table import FORMATS as FORMATS
from streameval.report.table import Table as Table
from streameval.report.table import amount as amount
from streameval.report.table import as_csv as as_csv
from streameval.report.table import as_latex as as_latex
from streameval.report.table import as_markdown as as_markdown
from streameval.report.table import as_parquet as as_parquet
from streameval.report.table import duration as duration
from streameval.report.table import interval_text as interval_text
from streameval.report.table import number as number
from streameval.report.table import number_text as number_text
from streameval.report.table import percent as percent
from streameval.report.terminal import BarProgress as BarProgress
from streameval.report.terminal import LogProgress as LogProgress
from streameval.report.terminal import ShownProgress as ShownProgress
from streameval.report.terminal import is_plain as is_plain
from streameval.report.terminal import make_bar as make_bar
from streameval.report.terminal import render as render
from streameval.report.terminal import show_progress as show_progress

__all__ = [
    "CAMERAS",
    "COLOURS",
    "CURVES",
    "FORMATS",
    "BarProgress",
    "LogProgress",
    "ShownProgress",
    "Table",
    "amount",
    "as_csv",
    "as_latex",
    "as_markdown",
    "as_parquet",
    "compare_conventions",
    "duration",
    "evaluation_blocks",
    "figure_bytes",
    "hardest_queries",
    "interval_text",
    "is_plain",
    "make_bar",
    "metrics_table",
    "number",
    "number_text",
    "percent",
    "plan_blocks",
    "plan_summary",
    "plot",
    "plot_trajectories",
    "render",
    "runs_of",
    "show_progress",
    "tau_max_distance",
]
