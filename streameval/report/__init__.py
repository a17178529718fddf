"""What a person reads.

style         colours and symbols, or plain ASCII; numbers as people read them
terminal      the result as a table; `inputs`, `bounds`, `camera_pairs`: parts of it
conventions   the result as other tools would read it
compare       runs compared, as tables
comparison    indexes against the exact evaluation, as tables and a plot
ledger        a ledger: segments, trajectory, a metric against the size of the gallery
trajectory    of ledgers, as a figure
export        tables for other programs: CSV, Markdown, LaTeX, Parquet
plots         curves as figures
html          a report as one file that opens offline
trec          lists of neighbours for other evaluators
audit         facts and findings of the inputs
metrics       the list of all metrics
plan          the plan, for ``--dry-run``
progress      the progress bar, or a line now and then where there is no terminal
"""
