"""Protocols: which pairs are positive, negative or ignored, from labels and lists.

`labels`    label columns of the queries, or of the gallery; which items have the same labels
`protocol`  rules over label columns; the named protocols; presets, how other tools read a ranking
`listed`    lists of good and junk items, query by query
`agreement` which gallery items have the labels of which queries
`finder`    the pairs that a protocol lists one by one
`counts`    numbers of pairs, from labels alone
`pairs`     what a protocol makes of every pair: listed pairs, and classes of items
"""
