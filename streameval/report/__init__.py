"""What a person reads: tables, their renderers, figures and reports.

table             tables as data; numbers as people read them
terminal, export, page   renderers: text, CSV Markdown LaTeX Parquet, a page of HTML
evaluation        metrics of results; `groups` of queries and pairs of cameras
provenance        what a result was made from
run_comparison    runs compared with the first of them
index_comparison  indexes against the exact evaluation
conventions       a result as other tools would read it
ledger            segments, trajectory, a metric against the size of the gallery
ranked_lists, pictures   the hardest queries, and their ranked lists as pictures
figures, curves   figures by matplotlib: how they look; curves of results
audit, metric_list, plan   findings of an audit; all metrics; the plan of ``--dry-run``
progress          the progress bar, or a line now and then where there is no terminal
"""
