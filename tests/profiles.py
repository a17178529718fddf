"""Profiles of Hypothesis: how many examples tests draw, and that time never decides.

A test says with `examples` how many it draws in ``ci``; ``dev``, the default, draws a tenth of
them, ``nightly`` ten times as many. The first two draw the same examples each time: whether they
pass depends on the code alone. ``pytest --hypothesis-profile nightly`` draws others each time.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings

PERCENT = {"dev": 10, "ci": 100, "nightly": 1000}
QUIET = [
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.function_scoped_fixture,  # such a test leaves nothing in its fixtures
]

for _name, _percent in PERCENT.items():
    settings.register_profile(
        _name,
        max_examples=_percent,  # of a test that doesn't say
        deadline=None,
        derandomize=_name != "nightly",
        suppress_health_check=QUIET,
    )
settings.load_profile("dev")


def examples(count: int, **more: Any) -> settings:
    """Return settings of so many examples in ``ci``, and in another profile by its share."""
    share = settings().max_examples
    return settings(max_examples=max(1, count * share // PERCENT["ci"]), **more)


def by_night() -> bool:
    """Tell whether the profile is that of tests which take hours."""
    return settings().max_examples == PERCENT["nightly"]
