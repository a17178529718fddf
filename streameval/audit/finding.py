"""What an audit says: facts, and findings with what each would change."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Finding:
    """Something in the inputs that is likely not what was meant, or worth to be known.

    Attributes
    ----------
    name : str
    severity : {"warning", "note"}
    message : str
        What was found, where.
    effect : str
        What it changes, and what to do.
    """

    name: str
    severity: Literal["warning", "note"]
    message: str
    effect: str

    def __str__(self) -> str:
        return f"{self.message}: {self.effect}"


@dataclass(frozen=True)
class Audit:
    """Facts by their names, and findings.

    Attributes
    ----------
    facts : dict of str to number, text, or such a dict or list
    findings : list of Finding
    """

    facts: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def __add__(self, other: Audit) -> Audit:
        return Audit(self.facts | other.facts, self.findings + other.findings)

    def warn(self, name: str, message: str, effect: str) -> None:
        """Add a warning."""
        self.findings.append(Finding(name, "warning", message, effect))

    def note(self, name: str, message: str, effect: str) -> None:
        """Add what is worth to be known."""
        self.findings.append(Finding(name, "note", message, effect))

    def summary(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        return {"facts": self.facts, "findings": [asdict(one) for one in self.findings]}
