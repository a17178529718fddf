"""Execution: one task, and what runs many of them.

task        a task of each pass: positives, range, counts
passes      the passes of an evaluation over an executor, and the merging of their parts
executor    what all modes share: a pass, run_task, and the contract of an executor
threads     the executor of one machine: a thread pool
cluster     the executor of a Dask cluster
connection  to a cluster: joined, of this machine, or given
worker      what runs on the workers of a cluster
record      what is told of finished work
checkpoint  finished work on disk, and going on with it
progress    events of a running evaluation
"""
