"""How a result is shown, whoever shows it: a command, a notebook or a report.

table         tables as data; their numbers; CSV, Markdown, LaTeX and Parquet
text, html    lines and tables as text, with its colours; and as HTML
provenance    what a result was made from, in words
evaluation    a result in words and tables: metrics, groups of queries and pairs of cameras
figures       figures by matplotlib; notebook_figure: that a notebook shows

An `Evaluation` calls these, so they know it as a type alone.
"""
