"""One table or figure of the paper: how it is measured, judged and drawn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from matplotlib.figure import Figure

from geosprint.paper.base import Numbers, PaperFinding, Rows, Setting
from geosprint.paper.claims import Claim, in_one_sentence


@dataclass(frozen=True)
class PaperExperiment:
    """One table or figure of the paper: how it is measured, which claims it tests, how it is drawn."""

    name: str
    paper: str  # where in the paper, and what it shows
    measure: Callable[[Setting], tuple[Rows, Numbers]]
    claims: tuple[Claim, ...]
    draw: Callable[[PaperFinding], Figure]
    quick: dict[str, Any] = field(default_factory=dict)  # what the quick setting changes for this one
    note: Callable[[Numbers], str] = lambda numbers: ""  # what is worth saying besides

    def run(self, setting: Setting) -> PaperFinding:
        """Measure and judge."""
        return self.judged(PaperFinding(self.name, setting, *self.measure(setting), verdict=""))

    def judged(self, finding: PaperFinding) -> PaperFinding:
        """The finding with its verdict: a sentence for every claim that can be tested, and the note."""
        said = [in_one_sentence(claim, finding) for claim in self.claims if claim.expected is not None]
        return replace(finding, verdict=" ".join([*said, self.note(finding.numbers)]).strip())
