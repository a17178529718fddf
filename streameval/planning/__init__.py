"""The plan: how an evaluation is cut into tasks and tiles, and what each part holds in memory.

Pure arithmetic on shapes; nothing is read.
"""
