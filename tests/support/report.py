"""What tests use of `streameval.report` beside its public names."""

from streameval.display.evaluation import evaluation_blocks as evaluation_blocks
from streameval.display.evaluation import metrics_table as metrics_table
from streameval.display.figures import CAMERAS as CAMERAS
from streameval.display.figures import COLOURS as COLOURS
from streameval.display.figures import CURVES as CURVES
from streameval.display.figures import figure_bytes as figure_bytes
from streameval.display.figures import plot as plot
from streameval.display.table import FORMATS as FORMATS
from streameval.display.table import Table as Table
from streameval.display.table import amount as amount
from streameval.display.table import as_csv as as_csv
from streameval.display.table import as_latex as as_latex
from streameval.display.table import as_markdown as as_markdown
from streameval.display.table import as_parquet as as_parquet
from streameval.display.table import duration as duration
from streameval.display.table import interval_text as interval_text
from streameval.display.table import number as number
from streameval.display.table import number_text as number_text
from streameval.display.table import percent as percent
from streameval.display.text import is_plain as is_plain
from streameval.display.text import render as render
from streameval.report.conventions import compare_conventions as compare_conventions
from streameval.report.inputs import plan_blocks as plan_blocks
from streameval.report.inputs import plan_summary as plan_summary
from streameval.report.ledger import plot_trajectories as plot_trajectories
from streameval.report.page import runs_of as runs_of
from streameval.report.ranked_lists import hardest_queries as hardest_queries
from streameval.report.ranked_lists import tau_max_distance as tau_max_distance
from streameval.run.progress_bar import BarProgress as BarProgress
from streameval.run.progress_bar import LogProgress as LogProgress
from streameval.run.progress_bar import NotebookProgress as NotebookProgress
from streameval.run.progress_bar import ShownProgress as ShownProgress
from streameval.run.progress_bar import make_bar as make_bar
from streameval.run.progress_bar import show_progress as show_progress

__all__ = [
    "CAMERAS",
    "COLOURS",
    "CURVES",
    "FORMATS",
    "BarProgress",
    "LogProgress",
    "NotebookProgress",
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
