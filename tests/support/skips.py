"""The last lines of a run of the tests: what was skipped, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """List the reasons for which tests were skipped, a line each, below everything else."""
    yield
    reporter: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(session.config, "workerinput"):
        return  # the process that collects the reports of all lists them
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in reporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple | list)
    )
    for reason, count in reasons.most_common():
        reporter.write_line(f"skipped {count}: {reason}")
    if not reasons:
        reporter.write_line("skipped nothing")
