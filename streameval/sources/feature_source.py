"""FeatureSource: a source of features, or of what becomes features once it is ready."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from streameval.planning.plan import Limits, Plan, pieces
from streameval.source import Source

if TYPE_CHECKING:
    from streameval.request import Request
    from streameval.run.session import Session
    from streameval.sources.features import Features

SCANNED_ROWS = 4096  # read together where a bad one is looked for
STEPS = "steps"  # the option that lists what is done to features before they are ranked


class FeatureSource(Source):
    """Features; or a source that makes features before it is counted.

    Attributes
    ----------
    metric : str
        Of the features.
    """

    metric: str

    @property
    def making(self) -> list[str]:
        """The names of the passes that make the features, in order."""
        return []

    def outline(self) -> Features:
        """Return features of the shape and dtype of those that are made; for a plan."""
        return cast("Features", self)

    def stages(self, limits: Limits) -> list[Plan]:
        """Return the plans of the passes that make the features.

        Raises
        ------
        BudgetError
            If one does not fit the limits.
        """
        return []

    def check(self, request: Request) -> FeatureSource:
        """Return the source as it is evaluated, checked against the request."""
        return cast("FeatureSource", super().check(request))

    def ready(self, session: Session, limits: Limits) -> Features:
        """Return the features, once they are made."""
        return cast("Features", self)

    def check_every_row(self) -> None:
        """Raise InputError for the first row that can't be evaluated, if any."""
        features = self.outline()
        for rows in pieces((0, features.shape[0]), SCANNED_ROWS):
            features.read_query(*rows)
        features.first_bad_row(features.shape[1])


def with_stages(counting: Plan, stages: Sequence[Plan]) -> Plan:
    """Return the plan of counting as that of the stages before it, too: what takes most."""

    def most(name: str) -> dict[str, int]:
        held: list[dict[str, int]] = [getattr(plan, name) for plan in (counting, *stages)]
        return max(held, key=lambda parts: sum(parts.values()))

    return replace(
        counting,
        parts=most("parts"),
        client=most("client"),
        bytes_read=counting.bytes_read + sum(plan.bytes_read for plan in stages),
        flops=counting.flops + sum(plan.flops for plan in stages),
    )
