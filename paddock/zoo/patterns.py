"""The numbers in the lines that training scripts print: `loss: 0.5`, `Epoch 1 step 10/100 loss=0.5`, `{'loss': 0.5}`,
`Epoch: [0][10/100] Loss 6.9 (7.0)`, `lm loss: 7.5E+00 | learning rate: 1.5E-04`, `ips: 512 samples/s`, …

Nothing here runs what it reads: a line is text, and its numbers are found by regular expressions of bounded work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from paddock.errors import bad_value

LONGEST = 4_000
"""Characters of a line that are looked at."""
NUMBER = r"[-+]?(?:\d{1,40}\.?\d{0,40}(?:[eE][-+]?\d{1,4})?|\.\d{1,40}(?:[eE][-+]?\d{1,4})?|nan|inf(?:inity)?)"
GAP = r"""["'\]]?\s{0,8}(?:[:=]\s{0,8}|\s{1,8}|\s{0,8}\(\w{1,40}\):\s{0,8})(?:tensor\()?["'\[]?\s{0,8}"""
"""Between a name and its number: `: `, `=`, blanks, quotes, and `(CosineDecay): `."""
STEP_NAMES = r"global[ _]step|iteration|iter|step|batch"
VALIDATION = re.compile(r"\b(?:val(?:id(?:ation)?)?|eval(?:uation)?|test)\b", re.IGNORECASE)

PER_SECOND = r"(?:/s(?:ec(?:ond)?)?|[ _]per[ _]sec(?:ond)?)"
SAMPLES = "samples|images|imgs|img|sequences"
NAMES = {
    "loss": r"(?:(?:total|train(?:ing)?|lm|avg|average|mean|running)[ _]?)?loss",
    "lr": r"learning[ _-]?rate|lr",
    "grad_norm": r"(?:global[ _])?grad(?:ient)?[ _]norm",
    "ips": rf"ips|(?:total[ _])?throughput|(?:{SAMPLES}){PER_SECOND}",
    "tokens_per_second": rf"tokens{PER_SECOND}",
    "accuracy": r"acc(?:uracy)?(?:@1|1)?|top-?1(?:[ _]acc)?",
    "perplexity": r"perplexity|ppl",
    "f1": r"f1",
}
"""How scripts call each metric."""
BEFORE = r"(?<![A-Za-z0-9_.@/-])"
PART = r"((?:val(?:id(?:ation)?)?|eval(?:uation)?|test)[ _./-])?"
"""A name may say that it is about validation: `eval_loss`."""
_METRICS = {
    name: re.compile(rf"{BEFORE}{PART}(?:{words}){GAP}({NUMBER})(?![\w.])", re.IGNORECASE)
    for name, words in NAMES.items()
}
_RATE_BEFORE_UNIT = re.compile(rf"(?<![\w.])({NUMBER})\s{{0,4}}({SAMPLES}|tokens)/s", re.IGNORECASE)
_EPOCH = re.compile(rf"{BEFORE}epochs?{GAP}(\d{{1,9}})", re.IGNORECASE)
_STEP = re.compile(rf"{BEFORE}(?:{STEP_NAMES}){GAP}(\d{{1,12}})", re.IGNORECASE)
_EPOCH_AND_STEP = re.compile(
    r"epoch:?\s{0,4}\[\s{0,8}(\d{1,9})\s{0,8}(?:/\s{0,8}\d{1,9}\s{0,8})?\]\s{0,4}\[\s{0,8}(\d{1,9})", re.IGNORECASE
)


@dataclass(frozen=True)
class LineNumbers:
    """What a line says."""

    metrics: dict[str, float]
    epoch: int | None = None
    step: int | None = None


class LineReader:
    """Finds the numbers of lines; a pattern that a user gives takes the place of ours for that name."""

    def __init__(self, patterns: Mapping[str, re.Pattern[str]] | None = None) -> None:
        self._own = dict(patterns or {})

    def read(self, line: str) -> LineNumbers:
        """The numbers of one line; none, where it is about something else."""
        line = line[:LONGEST]
        metrics: dict[str, float] = {}
        validates = VALIDATION.search(line) is not None and "train" not in line.lower()
        for name, pattern in _METRICS.items():
            if found := pattern.search(line):
                stage = "val" if validates or found.group(1) else "train"
                metrics[f"{stage}.{name}"] = float(found.group(2))
        if rate := _RATE_BEFORE_UNIT.search(line):
            unit = "tokens_per_second" if rate.group(2).lower() == "tokens" else "ips"
            metrics.setdefault(f"{'val' if validates else 'train'}.{unit}", float(rate.group(1)))
        metrics = {name: value for name, value in metrics.items() if name not in self._own}
        epoch, step = _position(line)
        for name, pattern in self._own.items():
            if found := pattern.search(line):
                value = float(found.group(1))
                if name == "epoch":
                    epoch = int(value)
                elif name == "step":
                    step = int(value)
                else:
                    metrics[name] = value
        return LineNumbers(metrics, epoch, step)


def _position(line: str) -> tuple[int | None, int | None]:
    both = _EPOCH_AND_STEP.search(line)
    if both:
        return int(both.group(1)), int(both.group(2))
    epoch, step = _EPOCH.search(line), _STEP.search(line)
    return (int(epoch.group(1)) if epoch else None), (int(step.group(1)) if step else None)


def parse_patterns(texts: tuple[str, ...]) -> dict[str, re.Pattern[str]]:
    """`NAME=REGULAR EXPRESSION` as a user gives it; the expression's group is the number."""
    patterns: dict[str, re.Pattern[str]] = {}
    for text in texts:
        name, equals, expression = text.partition("=")
        if not equals or not re.fullmatch(r"epoch|step|(?:train|val)\.\w+", name):
            why = "it is NAME=REGULAR EXPRESSION, and NAME is epoch, step, train.… or val.…"
            raise bad_value("--pattern", text, why, r"e.g. --pattern 'train.loss=cost is ([\d.]+)'")
        try:
            patterns[name] = re.compile(expression)
        except (re.error, RecursionError, OverflowError) as error:
            raise bad_value("--pattern", text, f"it is no regular expression: {error}") from None
        if patterns[name].groups != 1:
            raise bad_value("--pattern", text, "it should have one group (…), around the number")
    return patterns
