"""What a person reads.

style     colours and symbols, or plain ASCII; numbers as people read them
terminal  the result as a table
ledger    a ledger: segments, trajectory, a metric against the size of the gallery
compare   runs compared, as tables
export    tables for other programs: CSV, Markdown, LaTeX, Parquet
plots     curves as figures
html      a report as one file that opens offline
trajectory  of ledgers, as a figure
trec      lists of neighbours for other evaluators
plan      the plan, for ``--dry-run``
progress  the progress bar, or a line now and then where there is no terminal
"""
