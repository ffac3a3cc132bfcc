"""Experiments of the paper, and its claims, judged by one rule from what the experiments measured.

A claim is turned into comparisons, each a measured number with its 95 % interval: a difference, a ratio, a share. A
comparison *agrees* if its interval lies on the claimed side of "no effect" and, where the paper names a number, the
measured value reaches it or goes beyond it in the direction the paper argues (5 % are granted for rounding). It agrees
*in part* if the effect is there but smaller, by a factor of at most 2. Otherwise it does not agree; nor does an effect
that chance explains. Where the claim is that there is no effect, a comparison agrees unless its interval shows one.

A claim **holds** if all its comparisons on all models agree, and **does not hold** if fewer than a quarter agree at
least in part; between the two it **holds in part**. It is **not testable here** if no finding bears on it. A verdict
**in miniature** is that of `scenes` alone, a small Stable Diffusion with text, latents and guidance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from geosprint.estimates import Estimate
from geosprint.paper.base import PRESETS, Numbers, PaperFinding, Rows, Setting, estimate_in
from geosprint.paper.figures import Panel, drawn

HOLDS, IN_PART, FAILS, UNTESTED = VERDICTS = ("holds", "holds in part", "does not hold", "not testable here")
GRANTED = 0.95  # of a claimed number, which the paper rounds
PARTLY = 0.5  # of a claimed number, for an effect that is there but smaller
FEW = 0.25  # of the comparisons: a claim that fewer agree with does not hold
MINIATURE = "scenes"  # the model that stands for Stable Diffusion; it is judged by itself
OURS = "our question: "  # begins what the paper does not claim; the ledger does not count it
LISTED = 3  # comparisons that are written out; more are counted

Evidence = Mapping[str, Estimate]
"""The comparisons of one finding, by name."""


@dataclass(frozen=True)
class Claim:
    """What a sentence with a number or a universal word says of every comparison: which side of no effect, how far."""

    above: bool  # or below
    quantity: str  # what the comparisons measure
    null: float = 0.0  # the value of no effect
    claimed: float | None = None  # the paper's number; None: any distance from `null`
    absent: bool = False  # the claim is that there is no effect on this side
    of: Callable[[PaperFinding], Evidence] | None = None  # the comparisons; None: nothing here can test it
    needs: str = ""  # what a test would take

    def agreement(self, found: Estimate) -> float:
        """1 if a comparison agrees, 0.5 if in part, 0 if not."""
        seen = found.low > self.null if self.above else found.high < self.null
        if self.absent or not seen or self.claimed is None:
            return float(seen != self.absent)
        reached = found.value / self.claimed if self.above else self.claimed / max(found.value, 1e-300)
        return 1.0 if reached >= GRANTED else 0.5 if reached >= PARTLY else 0.0

    def contradicts(self, found: Estimate) -> bool:
        """Whether an interval shows the opposite."""
        if self.absent:
            return self.agreement(found) == 0
        return found.high < self.null if self.above else found.low > self.null

    def judge(self, findings: Mapping[str, PaperFinding]) -> tuple[str, dict[str, str]]:
        """The verdict, and what was measured, by model."""
        found = {model: some for model, one in findings.items() if self.of and (some := self.of(one))}
        agreements = [self.agreement(one) for comparisons in found.values() for one in comparisons.values()]
        return verdict_of(agreements), {model: self._said(comparisons) for model, comparisons in found.items()}

    def _said(self, comparisons: Evidence) -> str:
        if len(comparisons) <= LISTED:
            return ", ".join(f"{name}: {shown(found)}".removeprefix(": ") for name, found in comparisons.items())
        agree = list(map(self.agreement, comparisons.values()))
        against = sum(map(self.contradicts, comparisons.values()))
        partly = f", {agree.count(0.5)} in part" if 0.5 in agree else ""
        return f"{agree.count(1.0)} of {len(agree)} comparisons agree{partly}, {against} to the contrary"


above, below = partial(Claim, True), partial(Claim, False)
"""An effect on this side of `null`, as far from it as claimed."""
not_above, not_below = partial(Claim, True, absent=True), partial(Claim, False, absent=True)
"""No effect on this side of `null`."""


def at_most(quantity: str, claimed: float, of: Callable[[PaperFinding], Evidence] | None = None) -> Claim:
    """A number that may be anything up to the claimed one."""
    return below(quantity, math.inf, claimed, of=of)


def untested(needs: str) -> Claim:
    """What nothing here can test."""
    return above("", needs=needs)


def verdict_of(agreements: Sequence[float]) -> str:
    """The rule, over all comparisons of a claim."""
    if not agreements:
        return UNTESTED
    if min(agreements) == 1:
        return HOLDS
    return FAILS if sum(agreement > 0 for agreement in agreements) < FEW * len(agreements) else IN_PART


def shown(found: Estimate) -> str:
    """1.75 (1.68 to 1.81); no interval where none was measured."""
    value, low, high = (f"{x:.3g}" if abs(x) < 1000 else f"{x:,.0f}" for x in (found.value, found.low, found.high))
    return value if low == high else f"{value} ({low} to {high})"


def exactly(value: float) -> Estimate:
    """A number without an interval."""
    return Estimate(value, value, value)


def estimates(cells: Mapping[str, Any], *path: str, names: tuple[str, ...] = ()) -> dict[str, Estimate]:
    """All numbers at a path through these, if they were measured; "*" takes every name, and so does a path's end.

    They are called by the names that were taken so, and have the intervals that lie in or beside them.
    """
    asked, *further = path or ("*",)
    found: dict[str, Estimate] = {}
    for name in [name for name in cells if asked in (name, "*")]:
        cell, said = cells[name], (*names, name) if asked == "*" else names
        if isinstance(cell, Mapping) and "low" not in cell:
            found |= estimates(cell, *further, names=said)
        else:
            found[" ".join(said)] = estimate_in(cells, name)
    return found


def at(*path: str) -> Callable[[PaperFinding], Evidence]:
    """These numbers of a finding, as comparisons."""
    return lambda found: estimates(found.numbers, *path)


@dataclass(frozen=True)
class PaperExperiment:
    """One table or figure of the paper: how it is measured, which claims it tests, how it is drawn."""

    name: str
    paper: str  # where in the paper, and what it shows
    measure: Callable[[Setting], tuple[Rows, Numbers]]
    figure: tuple[Panel, ...]
    claims: Mapping[str, Claim]  # by the paper's sentence and its place, or by a question that it leaves open
    quick: dict[str, Any] = field(default_factory=dict)  # what the quick setting changes for this one
    note: Callable[[Numbers], str] = lambda numbers: ""  # what is worth saying besides

    def run(self, setting: Setting) -> PaperFinding:
        """Measure and judge."""
        return self.judged(PaperFinding(self.name, setting, *self.measure(setting), verdict=""))

    def draw(self, finding: PaperFinding) -> Figure:
        """The figure."""
        return drawn(self.figure, finding)

    def judged(self, finding: PaperFinding) -> PaperFinding:
        """The finding with its verdict: a sentence for every claim that can be tested, and the note."""
        said = []
        for text, claim in self.claims.items():
            word, measured = claim.judge({finding.setting.model: finding})
            quantities = "".join(f"; {claim.quantity}: {found}" for found in measured.values())
            said += [f"{word.capitalize()}: {text}{quantities}."] if claim.of else []
        return replace(finding, verdict=" ".join([*said, self.note(finding.numbers)]).strip())


def ledger(claims: Mapping[str, tuple[str, Claim]], findings: Mapping[str, Mapping[str, PaperFinding]]) -> str:
    """The page of claims, each with the experiment that tests it, as Markdown."""
    rule = (__doc__ or "").split("\n\n", 1)[1].strip()
    lines = [
        "# The paper's claims, and what we measured",
        "",
        "`geosprint claims` writes this page from what `geosprint reproduce` left under [results](results/README.md);",
        "a test rebuilds it and compares. Claims are in the paper's words and numbers, on its own models; what was",
        "measured is on the models named there, which are far smaller.",
        "",
        *rule.splitlines(),
        "",
        "| # | claim | command | measured here | verdict |",
        "|---|---|---|---|---|",
    ]
    words, small_words = list[str](), list[str]()
    for number, (text, (experiment, claim)) in enumerate(claims.items(), start=1):
        own = findings.get(experiment, {})
        word, measured = claim.judge({model: found for model, found in own.items() if model != MINIATURE})
        small, in_small = claim.judge({model: found for model, found in own.items() if model == MINIATURE})
        how = ["--quick"] if claim.of and not claim.needs else []
        if in_small:
            is_preset = own[MINIATURE].setting.steps == PRESETS[MINIATURE].steps
            how.append(f"--model {MINIATURE}" + ("" if is_preset else " --quick"))
        command = ", ".join(f"`geosprint reproduce {experiment} {option}`" for option in how) or "–"
        said = "; ".join(f"{model}: {found}" for model, found in (measured | in_small).items())
        said = f"{claim.quantity}. {said}" if said else claim.needs or "no finding bears on it"
        verdict = f"**{word}**" + (f"; in miniature **{small}**" if in_small else "")
        lines.append(f"| {number} | {text} | {command} | {said} | {verdict} |")
        if not text.startswith(OURS):
            words.append(word)
            small_words += [small] if in_small else []
    tallies = [", ".join(f"{some.count(word)} {word}" for word in VERDICTS) for some in (words, small_words)]
    tally = [f"Of the paper's {len(words)} claims: {tallies[0]}."]
    tally += [f"Of {len(small_words)} in miniature: {tallies[1]}."] if small_words else []
    return "\n".join([*lines, "", *tally, ""])
