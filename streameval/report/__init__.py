"""What a person reads: tables, their renderers, figures and reports.

table             tables as data; numbers as people read them
terminal, export, page   renderers: text (and progress), CSV Markdown LaTeX Parquet, a page
inputs            before an evaluation: the audit, and the plan of ``--dry-run``
evaluation        metrics of results, of groups of queries and pairs of cameras
provenance        what a result was made from
comparison        runs against the first of them, indexes against the exact evaluation
conventions       all metrics; a result as other tools would read it
ledger            segments, trajectory, a metric against the size of the gallery
ranked_lists      the hardest queries, and their ranked lists as pictures
figures           figures by matplotlib
"""
