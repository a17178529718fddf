"""Execution: one task, and what runs many of them.

task      a task of each pass: positives, range, counts
passes    the passes of an evaluation over an executor, and the merging of their parts
threads   the executor of one machine: a thread pool
progress  events of a running evaluation
"""
