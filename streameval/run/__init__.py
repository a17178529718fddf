"""Execution: the tasks of an evaluation, and what runs many of them.

preparation   a request checked against its inputs and planned
session       where and with what it runs; every pass goes through it
orchestrator  `run`: prepare, count, compute
job           what all tasks of an evaluation share
task          a task of each pass: positives, range, counts
passes        the passes of an evaluation, and the merging of their parts
executor      a pass, its tasks, and the threads of one machine
cluster       the executor of a Dask cluster
connection    to a cluster: joined, of this machine, or given
worker        what runs on the workers of a cluster
record        interface of a record of finished work
checkpoint    finished work on disk, and going on with it
provenance    what a result was made from, and the manifest for resuming
progress      events of a running evaluation
progress_bar  what shows them
"""
