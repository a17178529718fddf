"""Reports: what a person reads of several results, of a plan, of a ledger.

page              a page of HTML
inputs            what an evaluation is made from: the audit, the plan of ``--dry-run``, options
indexes           indexes against the exact evaluation
conventions       all metrics; a result as other tools would read it
ledger            segments, trajectory, a metric against the size of the gallery
ranked_lists      the hardest queries, and their ranked lists as pictures
"""
