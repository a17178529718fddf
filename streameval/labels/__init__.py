"""Readers of labels, of lists of pairs and of protocols.

`columns`         labels of both sides: an array per column, or a table; bundles of both
`stored`          a column of labels in an array, or in a matrix
`tables`          CSV and Parquet tables
`texts`           their cells as arrays
`names`           names of image files
`protocol_files`  protocols of a user's own, as TOML
`pair_files`      lists of pairs, such as good and junk ones
`trial_files`     the rows of trials, as benchmarks have drawn them
"""
