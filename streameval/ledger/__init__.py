"""The growing gallery: an evaluation on disk that is always up to date.

ledger        Ledger: create, append, remove, forget, add queries, evaluate, verify
create        what is fixed when a ledger is created
append        a segment on its way in: forecast, counts, old segments that are read again
queries       further queries
removal       segments and identities on their way out: what they added is subtracted
verification  everything read, and counted again
trajectory    an entry a snapshot; what a change will count, forecast
head          all of a ledger but its arrays: settings, segments, what has happened
state         positives, statistics and nearest negatives at a moment
history       what each change has added, by segment
block         some queries against some segments, each counted apart
gallery       labels and data of segments and queries, checked to be what they were
store         what is on disk
"""

from streameval.ledger.ledger import Ledger
from streameval.ledger.trajectory import Snapshot

__all__ = ["Ledger", "Snapshot"]
