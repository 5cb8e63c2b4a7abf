"""What came of a comparison, as lines of text."""

from __future__ import annotations

from collections.abc import Iterator

from paddock.alignment.comparison.comparability import State, word
from paddock.alignment.comparison.report import VERDICTS, summary
from paddock.alignment.comparison.runs import RunComparison, percent, shown_error


def comparison_text(found: RunComparison) -> str:
    """What came of it, for people."""
    lines = [f"{VERDICTS[found.aligned]}: {found.a.name} beside the reference {found.b.name}", summary(found), ""]
    lines += [*_facts(found), ""]
    if found.errors is not None:
        errors = found.errors
        lines.append(
            f"loss       mean {percent(errors.mean)}  smoothed {percent(errors.smoothed)}  "
            f"final {percent(errors.final)}  largest {percent(errors.max)} (step {errors.max_step})"
        )
    if found.norm is not None:
        norm = found.norm
        lines.append(f"grad norm  mean {percent(norm.mean)}  largest {percent(norm.max)} (step {norm.max_step})")
    width = max((len(metric.name) for metric in found.metrics), default=0)
    for one in found.metrics:
        lines.append(f"{one.name:<{width}}  {one.a:.6g}, reference {one.b:.6g}: {shown_error(one)} ({one.where})")
    lines += [f"ALARM: {alarm}" for alarm in found.alarms]
    lines += [f"note: {note}" for note in found.notes]
    return "\n".join(line.rstrip() for line in lines)


def _facts(found: RunComparison) -> Iterator[str]:
    """What the runs have in common: names alone, where they are the same; values where they differ."""
    facts = found.facts
    words: dict[State, str] = {"same": "and {} more", "unknown": "and {} more, of one of them"}
    for state, others in words.items():
        names = [fact.label for fact in facts.shown if fact.state == state]
        more = [others.format(count)] if (count := facts.count(state)) else []
        if names or more:
            yield f"{state:<9}  {', '.join(names + more)}"
    for fact in facts.shown:
        if fact.state == "differs":
            yield f"differs    {fact.label}: {word(fact.a)}, reference {word(fact.b)}"
