"""A report as one HTML file that opens offline: no script, no font, nothing from elsewhere.

page        the parts put together; the template, in which every text is escaped
runs        the runs, and whether they can be compared
table       tables as data: cells, what stands out among them
summary     metrics side by side, and how runs differ
queries     the hardest queries
background  options, data, provenance
figures     curves as images within the page
pictures    ranked lists as images within the page
"""

from streameval.report.html.page import render_report
from streameval.report.html.pictures import Images
from streameval.report.html.queries import hardest_queries
from streameval.report.html.runs import Run, runs_of

__all__ = ["Images", "Run", "hardest_queries", "render_report", "runs_of"]
