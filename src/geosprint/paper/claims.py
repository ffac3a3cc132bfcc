"""Every claim of the paper that can be tested, judged by what the experiments found."""

# ruff: noqa: E501  (one claim a line reads better)
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from geosprint.errors import FileError
from geosprint.paper.base import Finding
from geosprint.paper.registry import recall

HOLDS, IN_PART, FAILS, UNTESTED = "holds", "holds in part", "does not hold", "not testable here"

Numbers = dict[str, Any]
Judge = Callable[[Numbers], tuple[bool | None, str]]
"""What the numbers of one finding (its rows under "rows") say of a claim: whether it holds (None: in part), in words."""


@dataclass(frozen=True)
class Claim:
    """One sentence of the paper with a number or a universal word in it."""

    text: str
    where: str  # in the paper
    experiment: str | None  # None: nothing here can test it
    judge: Judge | None = None
    untested: str = ""  # what it would take


@dataclass(frozen=True)
class Verdict:
    """A claim with what was measured."""

    claim: Claim
    word: str
    measured: str


def judged(claim: Claim, findings: Mapping[str, Mapping[str, Finding]]) -> Verdict:
    """The claim against the findings of its experiment on every model: it holds if it does on all of them."""
    if claim.experiment is None or claim.judge is None:
        return Verdict(claim, UNTESTED, claim.untested)
    found = findings.get(claim.experiment, {})
    if not found:
        return Verdict(claim, UNTESTED, f"no finding of {claim.experiment} is at hand; run the command")
    said = {model: claim.judge({**finding.numbers, "rows": finding.rows}) for model, finding in found.items()}
    outcomes = [outcome for outcome, _ in said.values()]
    word = HOLDS if all(outcomes) else FAILS if all(outcome is False for outcome in outcomes) else IN_PART
    return Verdict(claim, word, "; ".join(f"{model}: {text}" for model, (_, text) in said.items()))


def read_findings(directory: Path) -> dict[str, dict[str, Finding]]:
    """All findings under a directory, by experiment and model."""
    found: dict[str, dict[str, Finding]] = {}
    for path in sorted(Path(directory).rglob("finding.json")):
        finding = recall(path.parent)
        found.setdefault(finding.name, {})[finding.setting.model] = finding
    if not found:
        raise FileError(f"expected finding.json files under {directory}, found none; run `geosprint reproduce` first")
    return found


def ledger(findings: Mapping[str, Mapping[str, Finding]]) -> str:
    """The page of claims, as Markdown."""
    lines = [
        "# The paper's claims, and what we measured",
        "",
        "Written by `geosprint claims`, from the findings of `geosprint reproduce` under [results](results/README.md);",
        "a test rebuilds this page and compares. Numbers in the column *claim* are the paper's, on its own models; those in",
        "*measured* are ours, on the models named there, which are far smaller. A claim *holds* if it does on every model",
        "tried, *holds in part* if on some or half-way, and intervals decide what counts as a difference.",
        "",
        "| # | claim (the paper's words and numbers) | command | measured here | verdict |",
        "|---|---|---|---|---|",
    ]
    for number, claim in enumerate(CLAIMS, start=1):
        found = judged(claim, findings)
        command = f"`geosprint reproduce {claim.experiment} --quick`" if claim.experiment else "–"
        lines.append(f"| {number} | {claim.text} ({claim.where}) | {command} | {found.measured} | **{found.word}** |")
    counts = [judged(claim, findings).word for claim in CLAIMS]
    tally = ", ".join(f"{counts.count(word)} {word}" for word in (HOLDS, IN_PART, FAILS, UNTESTED))
    return "\n".join([*lines, "", f"Of {len(CLAIMS)} claims: {tally}.", ""])


def _interval(numbers: Numbers, name: str, digits: int = 2) -> str:
    value, low, high = (numbers[f"{name}{end}"] for end in ("", "_low", "_high"))
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _drops_450_times(numbers: Numbers) -> tuple[bool | None, str]:
    if "ddpm_over_ddim" not in numbers:
        return None, "a flow has no DDPM trajectories"
    low, high = numbers["ddpm_over_ddim_low"], numbers["ddpm_over_ddim_high"]
    at = f"{_interval(numbers, 'ddpm_over_ddim', 0)} times at {numbers['share']:.0%} pruned"
    return (True if high >= 450 else None if low > 1 else False), at


def _straighter_prunes_more(numbers: Numbers) -> tuple[bool | None, str]:
    if "ddim_prunes_more" not in numbers:
        return None, "a flow has no DDPM trajectories"
    text = f"at score {numbers['target_score']:g} DDIM prunes {numbers['ddim_pruned']:.0%}, DDPM {numbers['ddpm_pruned']:.0%}"
    return numbers["ddim_prunes_more_low"] > 0, text


def _nearer_at_every_nfe(numbers: Numbers) -> tuple[bool | None, str]:
    metric = "frechet_data" if "frechet_data" in numbers else "frechet_fine"
    gaps = [gap for by_k in numbers[metric]["gap"].values() for gap in by_k.values()]
    nearer, farther = sum(gap["high"] < 0 for gap in gaps), sum(gap["low"] > 0 for gap in gaps)
    to = "the data" if metric == "frechet_data" else "the fine solve"
    text = f"Fréchet distance to {to}: nearer than a uniform spacing in {nearer}, farther in {farther} of {len(gaps)} cells"
    return (True if nearer == len(gaps) else None if nearer else False), text


def _nearer_to_the_fine_solve(numbers: Numbers) -> tuple[bool | None, str]:
    gaps = [gap for by_k in numbers["frechet_fine"]["gap"].values() for gap in by_k.values()]
    nearer, farther = sum(gap["high"] < 0 for gap in gaps), sum(gap["low"] > 0 for gap in gaps)
    text = f"nearer than a uniform spacing in {nearer}, farther in {farther} of {len(gaps)} cells"
    return (True if nearer == len(gaps) else None if nearer else False), text


def _saves_a_quarter(numbers: Numbers) -> tuple[bool | None, str]:
    cells = [(int(k), cell) for by_k in numbers["frechet_fine"]["same_distance"].values() for k, cell in by_k.items()]
    reached = [k for k, cell in cells if cell["saved"] >= 0.25 - 1e-9 and cell["known"] != "at most"]
    text = (
        f"as near to the fine solve as a uniform spacing of a third more calls in {len(reached)} of {len(cells)} cells"
    )
    return (True if len(reached) == len(cells) else None if reached else False), text


def _uniform_gets_worse(numbers: Numbers) -> tuple[bool | None, str]:
    rises = numbers["rises"]
    sure = {
        spacing: sorted({k for gaps in found.values() for k, gap in gaps.items() if gap["low"] > 0}, key=str)
        for spacing, found in rises.items()
    }
    text = ", ".join(
        f"{spacing} {'rises at ' + ' / '.join(at) if at else 'never rises'}" for spacing, at in sure.items()
    )
    honest = [at for spacing, at in sure.items() if spacing != "leading"]
    return (True if all(honest) else None if any(sure.values()) else False), text


def _ours_improves_monotonically(numbers: Numbers) -> tuple[bool | None, str]:
    ours = sorted((row for row in numbers["rows"] if row["schedule"] == "geosprint"), key=lambda row: row["steps"])
    values = [row["frechet_fine"] for row in ours]
    text = "Fréchet distance to the fine solve " + " → ".join(f"{value:.3g}" for value in values)
    text += " at K = " + ", ".join(str(row["steps"]) for row in ours)
    return all(later < before for before, later in pairwise(values)), text


def _beats_second_order(numbers: Numbers) -> tuple[bool | None, str]:
    wins = {metric: numbers[metric]["beats_default_at"] for metric in ("rmse", "frechet_fine")}
    most = max(int(k) for k in numbers["rmse"]["gap_to_default"])
    names = {"rmse": "RMSE", "frechet_fine": "Fréchet distance"}
    text = ", ".join(f"by {names[m]} at {'K = ' + ', '.join(map(str, at)) if at else 'no K'}" for m, at in wins.items())
    best = numbers["frechet_fine"]["beats_best_at"]
    text += f" of up to {most} (against its best schedule: {'K = ' + ', '.join(map(str, best)) if best else 'no K'})"
    return (True if all(most in at for at in wins.values()) else None if any(wins.values()) else False), text


def _second_order_gains_from_our_steps(numbers: Numbers) -> tuple[bool | None, str]:
    gaps = numbers["rmse"]["our_schedule_minus_default"]
    cells = [gap for by_k in gaps.values() for gap in by_k.values()]
    better, worse = sum(gap["high"] < 0 for gap in cells), sum(gap["low"] > 0 for gap in cells)
    text = f"DPM++ 2M and UniPC are nearer on our steps in {better}, farther in {worse} of {len(cells)} cells (RMSE)"
    return (True if better and not worse else None if better else False), text


def _falls_log_linearly(numbers: Numbers) -> tuple[bool | None, str]:
    power, exponential = numbers["r2_log_steps"], numbers["r2_steps"]
    text = f"R² of log score {exponential:.3f} over K, {power:.3f} over log K"
    return (True if exponential >= 0.98 else None if power >= 0.98 else False), text


def _score_foretells_quality(numbers: Numbers) -> tuple[bool | None, str]:
    between = list(numbers["over_schedules"].values())
    ranks = [found["rmse"] for found in between]
    over = numbers["over_steps"]["rmse"]
    text = f"rank correlation with RMSE {over:.2f} over K, {min(ranks):.2f} to {max(ranks):.2f} between schedules of equal K"
    # Among ten schedules a rank correlation below 0.65 may be chance at the 5 % level.
    return (True if min(ranks) >= 0.65 and over > 0.9 else None if over > 0.9 else False), text


def _blend_is_best_at_half_to_seven_tenths(numbers: Numbers) -> tuple[bool | None, str]:
    cells = numbers["frechet_fine"]
    held = [k for k, cell in cells.items() if any(0.5 <= blend <= 0.7 for blend in cell["within_chance"])]
    best = ", ".join(f"{cell['best']:g} at K = {k}" for k, cell in cells.items())
    text = f"best {best}; 0.5 to 0.7 within chance of it at {len(held)} of {len(cells)} K"
    return (True if len(held) == len(cells) else None if held else False), text


def _log_snr_alone_loses_to_uniform(numbers: Numbers) -> tuple[bool | None, str]:
    cells = [gap for cell in numbers["frechet_fine"].values() for gap in cell["log_snr_minus_uniform"].values()]
    worse, better = sum(gap["low"] > 0 for gap in cells), sum(gap["high"] < 0 for gap in cells)
    text = f"farther than a uniform spacing in {worse}, nearer in {better} of {len(cells)} cells"
    return (True if worse == len(cells) else None if worse else False), text


def _neither_alone_suffices(numbers: Numbers) -> tuple[bool | None, str]:
    cells = numbers["frechet_fine"]
    suffices = [(k, end) for k, cell in cells.items() for end in (0.0, 1.0) if end in cell["within_chance"]]
    said = ", ".join(f"blend {end:g} at K = {k}" for k, end in suffices)
    text = f"as good as the best, as far as chance tells: {said}" if said else "both ends are worse at every K"
    return (True if not suffices else None if len(suffices) < len(cells) else False), text


def _larger_windows_do_not_help(numbers: Numbers) -> tuple[bool | None, str]:
    cells = [gap for by_k in numbers["gap"]["rmse"].values() for gap in by_k.values()]
    better, worse = sum(gap["high"] < 0 for gap in cells), sum(gap["low"] > 0 for gap in cells)
    text = f"nearer than k = 2 in {better}, farther in {worse} of {len(cells)} cells (RMSE)"
    return (True if not better else None), text


def _late_is_twice_the_middle(numbers: Numbers) -> tuple[bool | None, str]:
    low, high = numbers["late_over_middle_literal_low"], numbers["late_over_middle_literal_high"]
    text = f"{_interval(numbers, 'late_over_middle_literal')} times"
    return (True if high >= 2 else None if low > 1 else False), text


def _peaks_at_both_ends(numbers: Numbers) -> tuple[bool | None, str]:
    counted, free = numbers["early_over_middle_literal"], numbers["early_over_middle_free"]
    text = f"early {counted:.2f} times the middle as the paper counts, {free:.2f} without the forced first window"
    late = numbers["late_over_middle_literal_low"] > 1
    peaks = [numbers[f"early_over_middle_{count}_low"] > 1 for count in ("literal", "free")]
    return (True if late and all(peaks) else None if late and any(peaks) else False), text


def _half_of_the_retained_is_late(numbers: Numbers) -> tuple[bool | None, str]:
    text = _interval(numbers, "late_share_of_retained_literal")
    return numbers["late_share_of_retained_literal_high"] >= 0.5, text


def _converges(numbers: Numbers) -> tuple[bool | None, str]:
    fuzzy, related = numbers["fuzzy_jaccard_three_quarters"], numbers["correlation_three_quarters"]
    halves = numbers["fuzzy_jaccard_disjoint_halves"], numbers["correlation_disjoint_halves"]
    text = (
        f"at three quarters of B = {numbers['trajectories']}: fuzzy Jaccard {fuzzy:.2f}, correlation {related:.2f}; "
        f"between disjoint halves, which share no trajectory, {halves[0]:.2f} and {halves[1]:.2f}"
    )
    return (True if min(fuzzy, related) >= 0.84 else None if max(fuzzy, related) >= 0.84 else False), text


def _samples_need_about_as_many_steps(numbers: Numbers) -> tuple[bool | None, str]:
    spreads = {target: numbers[f"nfe_{target}_largest_over_smallest"] for target in ("0.01", "0.001", "0.0001")}
    text = "largest over smallest " + ", ".join(f"{spread:.2f} at {target}" for target, spread in spreads.items())
    return (True if max(spreads.values()) <= 1.45 else None if min(spreads.values()) <= 1.45 else False), text


def _profiles_are_diverse(numbers: Numbers) -> tuple[bool | None, str]:
    low, high = numbers["correlation_low"], numbers["correlation_high"]
    return (True if low <= 0.37 <= high else None if high < 0.7 else False), _interval(numbers, "correlation")


def _score_falls_with_reflow(numbers: Numbers) -> tuple[bool | None, str]:
    said, falls = [], []
    for family in ("digits", "fashion"):
        scores = " → ".join(f"{score:.2g}" for score in numbers[f"{family}_score_by_round"])
        said.append(f"{family} flow {scores}")
        falls.append(bool(numbers[f"{family}_score_falls_monotonically"]))
    return (True if all(falls) else None if any(falls) else False), ", ".join(said)


def _schedule_travels_between_scales(numbers: Numbers) -> tuple[bool | None, str]:
    text = (
        f"another scale's schedule is surely worse in {numbers['surely_worse']}, surely better in "
        f"{numbers['surely_better']} of {numbers['pairs']} pairs, at most {_interval(numbers, 'highest_cost')} times the error"
    )
    return (True if not numbers["surely_worse"] else None), text


def _analysis_takes_forty_seconds(numbers: Numbers) -> tuple[bool | None, str]:
    seconds = numbers["places"]["CIFAR-10"]["analysis_seconds"]
    return (True if 20 <= seconds <= 80 else None if seconds < 20 else False), f"{seconds:.1f} s at that size"


def _recording_dominates(numbers: Numbers) -> tuple[bool | None, str]:
    places = numbers["places"]
    text = ", ".join(f"{name} {cell['record_share_as_timed']:.0%}" for name, cell in places.items())
    shares = [cell["record_share_as_timed"] > 0.5 for cell in places.values()]
    return (True if all(shares) else None if any(shares) else False), f"share of recording: {text}"


def _building_is_instantaneous(numbers: Numbers) -> tuple[bool | None, str]:
    slowest = max(cell["schedule_seconds"] for cell in numbers["places"].values())
    return slowest < 0.1, f"{slowest * 1000:.1f} ms"


_NEEDS_GPU = "needs the paper's own model, 10,000 samples and a GPU: `geosprint reproduce fid-vs-nfe --preset {}`"


CLAIMS: Sequence[Claim] = (
    Claim("GeoSPRINT outperforms uniform DDIM at every NFE but the lowest", "5.2, findings 1", "fid-vs-nfe", _nearer_at_every_nfe),
    Claim("so it does against the fine solve's own samples", "5.2.1, for Stable Diffusion", "fid-vs-nfe", _nearer_to_the_fine_solve),
    Claim("it matches DDIM with 25 % fewer network calls (60 steps against 80)", "5.2, finding 5", "fid-vs-nfe", _saves_a_quarter),
    Claim("FID on CIFAR-10 is 0.7 to 1.1 lower than DDIM's from NFE 20 on", "Table 1", None, untested=_NEEDS_GPU.format("cifar10")),
    Claim("FID on LSUN Church is 0.22 to 1.06 lower", "Table 1", None, untested=_NEEDS_GPU.format("church")),
    Claim("FID on Stable Diffusion 1.5 is up to 1.93 lower", "Table 1", None, untested=_NEEDS_GPU.format("sd15")),
    Claim("improvements grow with model complexity", "5.2, finding 2", None, untested="needs the three models of Table 1 and one metric that is comparable between them"),
    Claim("uniform DDIM gets worse at high NFE", "5.2, finding 3", "leading", _uniform_gets_worse),
    Claim("GeoSPRINT improves monotonically with NFE", "5.2, finding 3", "fid-vs-nfe", _ours_improves_monotonically),
    Claim("first-order DDIM on our schedule outperforms DPM-Solver++ at NFE ≥ 30", "Figure 1c, finding 4", "solver-order", _beats_second_order),
    Claim("open question: second-order solvers gain from the schedule, too", "6", "solver-order", _second_order_gains_from_our_steps),
    Claim("the score decreases log-linearly with NFE", "Figure 1b", "budget", _falls_log_linearly),
    Claim("so it is a principled knob for the step budget: it foretells quality", "Figure 1b", "budget", _score_foretells_quality),
    Claim("the blend has a broad optimum at 0.5 to 0.7", "Table 2, left", "blend", _blend_is_best_at_half_to_seven_tenths),
    Claim("log-SNR alone is worse than DDIM uniform", "5.3", "blend", _log_snr_alone_loses_to_uniform),
    Claim("neither log-SNR nor curvature alone suffices", "5.3", "blend", _neither_alone_suffices),
    Claim("k > 2 does not help", "C.3 and Limitations", "window", _larger_windows_do_not_help),
    Claim("the late zone is retained 2 times as often as the middle", "5.4", "where", _late_is_twice_the_middle),
    Claim("w(t) peaks at both ends", "Figure 3a", "where", _peaks_at_both_ends),
    Claim("50 % of retained steps lie in the final 20 % of denoising", "Figure 3c", "where", _half_of_the_retained_is_late),
    Claim("the score drops 450 times from DDPM to DDIM", "Table 2, right", "straightness", _drops_450_times),
    Claim("straighter trajectories are more compressible", "Figure 4b", "straightness", _straighter_prunes_more),
    Claim("the score falls with each round of reflow (a corollary it does not test)", "3.3", "reflow", _score_falls_with_reflow),
    Claim("fuzzy Jaccard 0.84 and correlation 0.86 at B = 75; B = 100 is adequate", "5.6, Figure 5", "convergence", _converges),
    Claim("samples differ by 1.2 to 1.4 times in the steps they need", "5.6, Figure 6b", "per-sample", _samples_need_about_as_many_steps),
    Claim("a sample's profile correlates 0.37 with the universal one", "5.6, Figure 6c", "per-sample", _profiles_are_diverse),
    Claim("open question: a schedule made at one guidance scale serves others", "Limitations", "guidance", _schedule_travels_between_scales),
    Claim("curvature analysis takes about 40 s for 100 trajectories of 200 steps in 3,072 dimensions", "C.4", "overhead", _analysis_takes_forty_seconds),
    Claim("schedule construction is instantaneous", "C.4", "overhead", _building_is_instantaneous),
    Claim("the offline cost is dominated by recording", "C.4", "overhead", _recording_dominates),
)  # fmt: skip
