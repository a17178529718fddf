"""How a result is shown, whoever shows it: a command, a notebook or a report.

table         tables as data; their numbers; CSV, Markdown, LaTeX and Parquet
text, html    lines and tables as text, with its colours; and as HTML
characters    those that a terminal obeys
provenance    what a result was made from, in words
evaluation    a result in words and tables: metrics, groups of queries and pairs of cameras
comparison    runs side by side, and against the first of them
shown         base class of results, which print and notebooks show
figures       figures by matplotlib; notebook_figure: that a notebook shows

Results call these, so they know them as types alone.
"""
