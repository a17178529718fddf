"""Execution: one task, and what runs many of them.

job         what all tasks of an evaluation share
task        a task of each pass: positives, range, counts
tiles       what a task reads, multiplies and masks before it counts
shots       single gallery shot: what a task adds to its counts
passes      the passes of an evaluation over an executor, and the merging of their parts
refining    further passes, where a threshold is known to within a bin only
ranks       the pass of ranks alone, each stretch of the gallery apart
searching   lists of neighbours: searched, ranked again, counted
executor    what all modes share: a pass, run_task, and the contract of an executor
threads     the executor of one machine: a thread pool
cluster     the executor of a Dask cluster
connection  to a cluster: joined, of this machine, or given
worker      what runs on the workers of a cluster
record      what is told of finished work
checkpoint  finished work on disk, and going on with it
progress    events of a running evaluation
"""
