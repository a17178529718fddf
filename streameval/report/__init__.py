"""What a person reads: tables, their renderers, figures and reports.

table             tables as data; their numbers; CSV, Markdown, LaTeX and Parquet
terminal, page    text, with its colours and progress; a page of HTML
inputs            what an evaluation is made from: the audit, the plan of ``--dry-run``, options
evaluation        metrics of results, of groups of queries and pairs of cameras
comparison        runs against the first of them, indexes against the exact evaluation
conventions       all metrics; a result as other tools would read it
ledger            segments, trajectory, a metric against the size of the gallery
ranked_lists      the hardest queries, and their ranked lists as pictures
figures           figures by matplotlib
"""
