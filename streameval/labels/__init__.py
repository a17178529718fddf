"""Readers of labels, of lists of pairs and of protocols.

`columns`        labels of both sides: an array per column, or a table
`tables`         CSV and Parquet tables
`file_names`     identity and camera in the names of image files
`bundle`         one file that holds features and labels of both sides
`listed`         lists of good and junk pairs
`protocol_file`  protocols of a user's own, as TOML
"""
