"""The growing gallery: an evaluation on disk that is always up to date.

ledger     Ledger: create, append, remove, forget, add queries, evaluate, verify
creating   what is fixed when a ledger is created
appending  a segment on its way in: forecast, counts, old segments that are read again
removing   segments and identities on their way out: what they added is subtracted
queries    further queries
moving     data that have moved
verifying  everything read, and counted again
snapshots  the statistics of a state, and its entry of the trajectory
head       all of a ledger but its arrays: settings, segments, what has happened
state      what a ledger knows, and what each change has added
counting   some queries against some segments, each counted apart
sources    the data of segments, found to be what they were
forecast   what a change will count, said beforehand
labels     labels as they are kept
packing    several arrays in one
store      the icechunk repository: one snapshot a change
"""

from streameval.ledger.ledger import Ledger
from streameval.ledger.snapshots import Snapshot

__all__ = ["Ledger", "Snapshot"]
