"""What tests use of `streameval.single_shot` beside its public names."""

from streameval.single_shot.ahead import ONE as ONE
from streameval.single_shot.ahead import ROWS as ROWS
from streameval.single_shot.ahead import Ahead as Ahead
from streameval.single_shot.ahead import fold as fold
from streameval.single_shot.ahead import most_entries as most_entries
from streameval.single_shot.counter import ShotCounter as ShotCounter
from streameval.single_shot.poisson_binomial import NEGLIGIBLE as NEGLIGIBLE
from streameval.single_shot.poisson_binomial import hopeless_from as hopeless_from

__all__ = [
    "NEGLIGIBLE",
    "ONE",
    "ROWS",
    "Ahead",
    "ShotCounter",
    "fold",
    "hopeless_from",
    "most_entries",
]
