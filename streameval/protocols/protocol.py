"""Protocols: which (query, gallery) pairs take part, as data.

Every pair is exactly one of *ignored*, *positive* (same identity, not ignored) and *negative*
(anything else). A `Protocol` says which pairs are ignored and how CMC is read; nothing else in the
package knows a protocol by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import InitVar, dataclass, replace
from typing import Any, Literal

from streameval.choices import (
    IDENTITY_READINGS,
    OVER_DRAWS,
    AveragePrecision,
    CmcReading,
    IdentityReading,
    SelfMatch,
    TieRule,
    Unmatched,
)
from streameval.errors import OptionError, entry_point, refuse
from streameval.protocols.rows import Rows
from streameval.protocols.rules import Rule, Side, check_few, same
from streameval.protocols.trials import ALL, Trials
from streameval.protocols.values import FLAG, VALUES, as_tuple, is_text

REST = "rest"  # queries that are what a trial does not draw
SELECTIONS: Mapping[str, Side] = {"queries": "query", "gallery": "gallery"}
"""What says who takes part, and the side that each is about."""

SINGLE_GALLERY_SHOT: Literal["single-gallery-shot"] = "single-gallery-shot"
DRAWN_READINGS = "first-match", "distinct-identities"  # of CMC, over all draws


@dataclass(frozen=True)
class Protocol:
    """Which pairs are ignored, and how CMC counts.

    Attributes
    ----------
    name : str
    ignore : tuple of str
        Rules: a pair is ignored if one of them holds. ``("same(id, cam)",)`` ignores the same
        identity seen by the same camera, ``("same(cam)",)`` every pair of the same camera, ``()``
        no pair by its labels. A tuple of columns, ``("id", "cam")``, is the earlier spelling of a
        rule.
    cmc : {"first-match", "all-shots", "single-gallery-shot", "distinct-identities"}
        How CMC counts a query with several positives: see `MetricOptions`.
    junk_ids : tuple of int or str
        Gallery identities that are ignored for all queries.
    self_match : {None, "index", "key"}
        Ignore the query's own image: the gallery item with the same index, or the same key.
    listed : bool
        Take positive and ignored pairs only from lists (`ListedPairs`): the rules are
        ``pair.good or pair.junk`` and ``("pair.junk",)``.
    shot_draws, shot_seed : int
        Number and seed of the draws of ``CMC_sampled@x`` under single gallery shot. Each draw
        takes one item of each identity for each query.
    queries, gallery : str or Rows
        Which queries ask, and which items they rank: rules over the columns of that side, such as
        ``"cam in [3, 6]"``, or row numbers, ``Rows([0, 3])``; all by default. Others count nowhere.
        ``queries="rest"`` takes what a trial does not draw, where both sides are the same images.
    galleries : str or sequence of Rows
        A column of the gallery: each of its labels is a gallery by itself. Or the rows of each
        gallery; an item may be in several.
    trials : Trials or mapping, optional
        Draws of galleries, each an evaluation by itself; or the mean over all draws.
    positive : str
        The rule of positive pairs, of those that are not ignored. Each of its alternatives needs
        the same label in some column, or a list of pairs.
    unmatched : {"exclude", "miss", "error"}
        What a query without a positive is to means over Q+: see `MetricOptions`.
    ap : {"step", "trapezoid", "threshold"}
        Rule of average precision: see `MetricOptions`.
    ties : {"pessimistic", "optimistic", "stable", "expected"}
        Order of tied items: see `MetricOptions`.

    Other Parameters
    ----------------
    same_identity_and_camera, same_camera : bool
        Earlier spelling of ``ignore``: add ``("id", "cam")``, and ``("cam",)``.
    """

    name: str
    ignore: tuple[str | tuple[str, ...], ...] = ()
    cmc: CmcReading = "first-match"
    junk_ids: tuple[int | str, ...] = (-1,)
    self_match: SelfMatch | None = None
    listed: bool = False
    shot_draws: int = 10
    shot_seed: int = 0
    positive: str = "same(id)"
    queries: str | Rows = ""
    gallery: str | Rows = ""
    galleries: str | tuple[Rows, ...] = ""
    trials: Trials | None = None
    unmatched: Unmatched = "exclude"
    ap: AveragePrecision = "step"
    ties: TieRule = "pessimistic"
    same_identity_and_camera: InitVar[bool | None] = None
    same_camera: InitVar[bool | None] = None

    @entry_point
    def __post_init__(
        self, same_identity_and_camera: bool | None, same_camera: bool | None
    ) -> None:
        """Bring sequences to tuples and rules to text; raise OptionError for other values."""
        second: object = self.ignore
        if isinstance(second, bool):  # ``Protocol(name, True)`` is the earlier spelling
            same_identity_and_camera, second = second, ()
        flags = {
            "same_identity_and_camera": (same_identity_and_camera, ("id", "cam")),
            "same_camera": (same_camera, ("cam",)),
        }
        for name, (flag, _) in flags.items():
            self._check(name, flag, lambda flag: flag is None or isinstance(flag, bool), FLAG)
        if second and any(flag is not None for flag, _ in flags.values()):
            raise OptionError(
                f"protocol {self.name} has ignore and {' or '.join(flags)}, its earlier spelling: "
                "give ignore alone"
            )
        rules = as_tuple(second, 2) or tuple(rule for flag, rule in flags.values() if flag)
        if isinstance(rules, tuple):
            rules = tuple(map(_as_rule, rules))
        object.__setattr__(self, "ignore", rules)
        for name in ("junk_ids", "galleries"):
            object.__setattr__(self, name, as_tuple(getattr(self, name)))
        trials: object = self.trials
        if isinstance(trials, Mapping):
            try:
                object.__setattr__(self, "trials", Trials.of(trials))
            except OptionError as error:
                raise OptionError(f"trials of protocol {self.name}: {error}") from error
        for name, (can_be, expected) in VALUES.items():
            self._check(name, getattr(self, name), can_be, expected)
        self._check_selections()
        try:
            object.__setattr__(self, "ignore", tuple(Rule.of(str(one)).text for one in self.ignore))
            object.__setattr__(self, "positive", Rule.of(self.positive).text)
            check_few(self.positive_by, self.ignored_by)
        except OptionError as error:
            raise OptionError(f"protocol {self.name}: {error}") from error
        refuse(
            OptionError,
            self.listed
            and self.by_identity
            and f"protocol {self.name} takes its pairs from lists, and its CMC "
            f"{self.by_identity.does}: lists don't tell what an unlisted item of the query's own "
            "identity is; choose cmc first-match or all-shots",
            self.positive != "same(id)"
            and self.by_identity
            and f"protocol {self.name} has positive {self.positive!r}, and its CMC "
            f"{self.by_identity.does}: give same(id), or choose cmc first-match or all-shots",
            self.over_draws
            and self.cmc not in DRAWN_READINGS
            and f"protocol {self.name} takes the mean over all draws, and its cmc is {self.cmc!r}; "
            f"{' or '.join(map(repr, DRAWN_READINGS))} is needed",
            self.listed
            and self.self_match is not None
            and f"protocol {self.name} takes its pairs from lists alone, and got self_match: put "
            "these pairs on the junk list",
        )

    def _check(self, what: str, value: Any, can_be: Callable[[Any], bool], expected: str) -> None:
        if not can_be(value):
            raise OptionError(f"{what} of protocol {self.name} is {value!r}; {expected} is needed")

    def _check_selections(self) -> None:
        """Bring rules of one side to one spelling."""
        for name in SELECTIONS:
            try:
                rule = self.rule_of(name)
            except OptionError as error:
                raise OptionError(f"{name} of protocol {self.name}: {error}") from error
            if rule is not None:
                object.__setattr__(self, name, rule.text)
        drawn = self.trials is not None and self.trials.side == "gallery"
        refuse(
            OptionError,
            self.gallery == REST
            and f"gallery of protocol {self.name} is {REST!r}, which only queries can be",
            self.queries == REST
            and not drawn
            and f"queries of protocol {self.name} are {REST!r}, and no trial draws gallery items: "
            "add [trials]",
            self.own_images != self.self_match == "key"
            and f"self_match of protocol {self.name} is 'key', and its queries are {REST!r}, over "
            "all draws: there an image is told by its row; leave self_match out",
        )

    def rule_of(self, name: str) -> Rule | None:
        """Return the rule ``queries`` or ``gallery``; None for all, for the rest, and for rows."""
        given = getattr(self, name)
        is_rule = isinstance(given, str) and given not in ("", REST)
        return Rule.of_side(given, SELECTIONS[name]) if is_rule else None

    @property
    def selects(self) -> bool:
        """Whether some queries or items are left out."""
        return any((self.queries, self.gallery, self.galleries, self.trials))

    def with_trials(self, times: Any) -> Protocol:
        """Return the protocol with so many trials, or with ``"all"`` draws in expectation.

        Raises
        ------
        OptionError
            If it has no trials, or there can't be so many.
        """
        if self.trials is None:
            raise OptionError(
                f"trials is {times!r}, and protocol {self.name} draws no gallery: leave it out, or "
                "add [trials] to the protocol"
            )
        return replace(self, trials=replace(self.trials, times=times))

    def with_given_trials(self, times: int) -> Protocol:
        """Return the protocol with so many trials whose rows are given, in place of draws.

        Raises
        ------
        OptionError
            If it has no trials, or takes the mean over all draws.
        """
        if self.trials is None:
            raise OptionError(
                f"got drawn, the rows of trials, and protocol {self.name} has no trials: leave it "
                'out, or add [trials] with draw = "given" to the protocol'
            )
        if self.over_draws:
            raise OptionError(
                f"got drawn, the rows of trials, and protocol {self.name} takes the mean over all "
                "draws: leave one of them out"
            )
        return replace(self, trials=self.trials.given(times))

    @property
    def selections(self) -> list[str]:
        """Describe which queries ask and which items they rank, where not all do."""
        words = [
            f"{name} {given}" if given == REST else f"{name} of {given}"
            for name in SELECTIONS
            if (given := getattr(self, name))
        ]
        if isinstance(self.galleries, tuple):
            words.append(f"galleries that are given ({len(self.galleries)})")
        elif self.galleries:
            words.append(f"a gallery for each {self.galleries}")
        return words if self.trials is None else [*words, str(self.trials)]

    @property
    def several(self) -> bool:
        """Whether it makes several evaluations: of trials, or of galleries."""
        return (self.trials is not None and not self.over_draws) or bool(self.galleries)

    @property
    def over_draws(self) -> bool:
        """Whether metrics are means over all draws of the gallery, in place of trials."""
        return self.trials is not None and self.trials.times == ALL

    @property
    def own_images(self) -> SelfMatch | None:
        """How a query's own image is told: by its index where what is not drawn asks."""
        return "index" if self.over_draws and self.queries == REST else self.self_match

    @property
    def by_identity(self) -> IdentityReading | None:
        """How CMC counts gallery identities; None where it doesn't."""
        return OVER_DRAWS if self.over_draws else IDENTITY_READINGS.get(self.cmc)

    @property
    def positive_by(self) -> Rule:
        """The rule of positive pairs."""
        return Rule.of("pair.good or pair.junk" if self.listed else self.positive)

    @property
    def ignored_by(self) -> tuple[Rule, ...]:
        """The rules of ignored pairs."""
        return tuple(map(Rule.of, map(str, ["pair.junk"] if self.listed else self.ignore)))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of ignored and of positive pairs."""
        return *self.ignored_by, self.positive_by

    @property
    def lists(self) -> tuple[str, ...]:
        """Names of the lists of pairs that its rules name."""
        return tuple(dict.fromkeys(name for rule in self.rules for name in rule.lists))

    def columns_of(self, side: Side) -> tuple[str, ...]:
        """Return the label columns that a side needs in addition to ``id``, in the rules' order."""
        by_key = ["key"] if self.self_match == "key" else []
        names = dict.fromkeys(name for rule in self.rules for name in sorted(rule.columns(side)))
        names |= dict.fromkeys(self._selected_by(side))
        return tuple(name for name in dict.fromkeys([*names, *by_key]) if name != "id")

    def _selected_by(self, side: Side) -> Iterator[str]:
        """Yield the columns by which items of a side are selected or drawn."""
        for name, own in SELECTIONS.items():
            rule = self.rule_of(name)
            if own == side and rule is not None:
                yield from sorted(rule.columns(side))
        if isinstance(self.galleries, str) and self.galleries and side == "gallery":
            yield self.galleries
        if self.trials is not None and self.trials.side == side:
            yield from self.trials.per

    @property
    def columns(self) -> tuple[str, ...]:
        """Label columns that either side needs in addition to ``id``."""
        return tuple(dict.fromkeys([*self.columns_of("query"), *self.columns_of("gallery")]))

    def ignored(self) -> list[str]:
        """Describe the ignored pairs, except junk."""
        if self.listed:
            return ["what a list says"]
        return [*map(_in_words, self.ignored_by), *self.own_image()]

    def own_image(self) -> list[str]:
        """Describe the pair of a query and its own image, if it is ignored."""
        return [] if self.self_match is None else [f"a query's own image, by {self.self_match}"]


def _as_rule(rule: Any) -> Any:
    """Return a rule as text, where it is a tuple of label columns."""
    columns = isinstance(rule, tuple) and rule and all(map(is_text, rule)) and all(rule)
    return same(sorted(set(rule), key=lambda name: (name != "id", name))) if columns else rule


def _in_words(rule: Rule) -> str:
    """Describe the pairs of a rule; one that is no plain agreement is given as it is."""
    names, (term, *others) = {"id": "identity", "cam": "camera"}, rule.terms or (None,)
    if term is None or others or term.different or term.tests:
        return f"pairs of which {rule.text}"
    columns = sorted(term.same, key=lambda name: (name != "id", name))
    return f"{'pairs' if 'id' in columns else 'every pair'} of the same " + " and the same ".join(
        names.get(name, name) for name in columns
    )
