"""What verbs print: tables and summaries for people, the same content as plain data for machines."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from geosprint.report.tables import Table

if TYPE_CHECKING:
    from geosprint.doctor import Finding
    from geosprint.extraction import Budget
    from geosprint.profile import CurvatureProfile
    from geosprint.schedule import StepSchedule

STABLE = 0.8  # same steps within 5: from here on, more trajectories changed errors by 1 % at most (docs/big-models.md)


def summary(profile: CurvatureProfile) -> dict[str, Any]:
    """What a profile says, in numbers."""
    stability = profile.stability() if len(profile.kept) > 1 else None
    return {
        "model": profile.origin.model,
        "trajectories": len(profile.kept),
        "reference_steps": len(profile.timesteps) - 1,
        "solver": profile.origin.solver,
        "nfe": profile.nfe,
        "settings": profile.settings.__dict__,
        "retained_mean": float(profile.retained_counts.mean()),
        "retained_min": int(profile.retained_counts.min()),
        "retained_max": int(profile.retained_counts.max()),
        "score_mean": float(profile.scores.mean()),
        "retention_by_zone": _zones(profile),
        "stability": stability.__dict__ if stability else None,
    }


def _zones(profile: CurvatureProfile) -> dict[str, float]:
    """Mean retention early, midway and late (Section 5.4), the forced window left out."""
    clock = profile.noise.clock(profile.timesteps[:-1])
    zones = {
        "early (t/T > 0.8)": clock > 0.8,
        "middle": (clock >= 0.2) & (clock <= 0.8),
        "late (t/T < 0.2)": clock < 0.2,
    }
    return {name: float(profile.free_retention[zone].mean()) for name, zone in zones.items() if zone.any()}


def show_profile(profile: CurvatureProfile, path: Path) -> None:
    """What a profile says, for people."""
    found = summary(profile)
    recorded = f"{found['trajectories']} trajectories of {found['reference_steps']} {found['solver']} steps"
    print(f"{path}: {found['model']}, {recorded} ({found['nfe']:,} network calls)")
    print(f"  retention w(t), noise → clean  {_sparkline(profile.free_retention)}")
    for zone, retention in found["retention_by_zone"].items():
        print(f"  {zone:<30} {retention:.3f}")
    print(f"  states a sample needs          {found['retained_mean']:.1f} of {found['reference_steps'] + 1} "
          f"({found['retained_min']} to {found['retained_max']}), score {found['score_mean']:.2g}")  # fmt: skip
    if stability := found["stability"]:
        print(f"  stability, half against half   correlation {stability['correlation']:.2f}, same steps within 5: "
              f"{stability['fuzzy_jaccard']:.0%} (exactly: {stability['jaccard']:.0%})")  # fmt: skip
        if stability["fuzzy_jaccard"] < STABLE:
            print(f"  not stable yet: below {STABLE:.0%} within 5, more trajectories would move the steps; record more "
                  f"than {found['trajectories']} with --trajectories")  # fmt: skip


def _sparkline(values: Any, width: int = 50) -> str:
    """The curve in one line of text, each letter the mean of a stretch."""
    bars = "▁▂▃▄▅▆▇█"
    size = max(1, len(values) // width)
    means = [values[i : i + size].mean() for i in range(0, len(values), size)]
    top = max(means) or 1.0
    return "".join(bars[min(int(value / top * len(bars)), len(bars) - 1)] for value in means)


def listed_steps(schedule: StepSchedule) -> dict[str, Any]:
    """A schedule as plain lists."""
    return {
        "steps": len(schedule),
        "timesteps": schedule.timesteps.tolist(),
        "sigmas": schedule.sigmas.tolist(),
        "log_snr": schedule.log_snr.tolist(),
    }


def show_schedule(schedule: StepSchedule, path: Path) -> None:
    """Where a schedule steps, in one line each of times and sigmas."""
    print(f"{path}: {len(schedule)} steps")
    print("  timesteps  " + ", ".join(f"{t:g}" for t in schedule.timesteps))
    print("  sigmas     " + ", ".join(f"{s:.4f}" for s in schedule.sigmas))


def show_budget(found: Budget, path: Path) -> None:
    """How many steps the target costs, and how the score falls with K."""
    larger = f"every K from {found.settled} on does" if found.settled else "not every larger K does"
    reached = f"{len(found.schedule)} steps reach a score of {found.score:.3g} (target {found.target_score:g})"
    print(f"{reached}; {larger}.")
    shown = [k for k in (2, 3, 5, 8, 10, 15, 20, 30, 50, 100, 200) if k in found.curve]
    Table.of(("K", "score"), [(k, f"{found.curve[k]:.3g}") for k in shown]).show()
    show_schedule(found.schedule, path)


def show_findings(found: list[Finding]) -> None:
    """What was looked at, by kind, with what to do about what is missing."""
    width = max(len(finding.name) for finding in found)
    for kind, findings in groupby(found, key=lambda finding: finding.kind):
        print(f"{kind}s")
        for finding in findings:
            remedy = f"; run: {finding.remedy}" if finding.remedy else ""
            print(f"  {finding.name:<{width}}  {finding.found}{remedy}")
    broken = [finding.name for finding in found if finding.is_broken]
    print(f"not as it must be: {', '.join(broken)}" if broken else "all that runs need is there")
