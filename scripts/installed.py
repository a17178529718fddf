"""Say whether this environment holds this checkout and all that it needs.

Exit status 0 if it does; else 1, and what is missing. Compared with pyproject.toml as it is
now, so that a changed requirement is noticed.

Usage: installed.py EXTRA...
"""

from __future__ import annotations

import json
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from urllib.parse import unquote, urlparse

ROOT = Path(__file__).resolve().parent.parent


def missing(extras: list[str]) -> list[str]:
    """Return what is missing, in words."""
    try:
        from packaging.requirements import Requirement

        installed = distribution("streameval")
    except (ImportError, PackageNotFoundError):
        return ["streameval"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    origin = json.loads(installed.read_text("direct_url.json") or "{}").get("url", "")
    wrong = []
    if Path(unquote(urlparse(origin).path)) != ROOT or installed.version != project["version"]:
        wrong.append("this checkout of streameval")
    wanted = [*project["dependencies"], f"streameval[{','.join(extras)}]"]
    for text in wanted:
        requirement = Requirement(text)
        if requirement.name == "streameval":  # an extra may name others
            for extra in requirement.extras:
                wanted += project["optional-dependencies"][extra]
            continue
        try:
            if not requirement.specifier.contains(version(requirement.name), prereleases=True):
                wrong.append(text)
        except PackageNotFoundError:
            wrong.append(text)
    return wrong


if __name__ == "__main__":
    found = missing(sys.argv[1:])
    if found:
        print("missing: " + ", ".join(found))
    sys.exit(bool(found))
