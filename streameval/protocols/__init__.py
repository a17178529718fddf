"""Protocols: which pairs are positive, negative or ignored, from labels and lists.

`labels`    label columns of the queries, or of the gallery; which items have the same labels
`rules`     what holds of a pair, as an expression over label columns
`protocol`  rules of positive and ignored pairs; presets, how other tools read a ranking
`rows`      queries or items that are given by their numbers
`row_numbers` row numbers that are given, checked
`values`    what the attributes of a protocol can be
`trials`    galleries that are drawn several times, or given; all draws, in expectation
`draws`     the rows of each trial
`views`     which queries rank which items, in one of several evaluations
`shipped`   the named protocols, a file each
`listed`    lists of pairs: of good and junk items, query by query
`agreement` which gallery items have the labels of which queries
`finder`    the pairs that a protocol lists one by one
`classes`   rules over many items, by classes of queries and of items
`counts`    numbers of pairs, from labels alone
`pairs`     what a protocol makes of every pair: listed pairs, and classes of items
"""
