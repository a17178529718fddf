"""Protocols: which pairs are positive, negative or ignored, from labels and lists.

`labels`    label columns of the queries, or of the gallery
`protocol`  rules over label columns; the named protocols
`matching`  which items of both sides have the same labels
`listed`    lists of good and junk items, query by query
`pairs`     what a protocol makes of every pair: listed pairs, and classes of items
`presets`   how other tools read a ranking, from ``conventions.toml``
"""
