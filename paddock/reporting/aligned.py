"""Two runs compared, for programs and notebooks: the verdict, with the curves beside it."""

from __future__ import annotations

import html
from base64 import b64encode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.alignment.comparison.report import check_report_name, error_plot, loss_plot, write_report
from paddock.alignment.comparison.runs import RunComparison
from paddock.alignment.comparison.text import comparison_text
from paddock.telemetry.drawing.svg import draw_sheet


@dataclass(frozen=True, repr=False)
class Alignment:
    """What came of comparing a run with a reference.

    >>> print(trainer.align("runs/reference"))
    """

    found: RunComparison

    @property
    def aligned(self) -> bool:
        """Whether every error is within the tolerance, and there is no alarm.

        >>> trainer.align("runs/reference").aligned
        """
        return self.found.aligned

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, as `paddock align --json` prints them.

        >>> trainer.align("runs/reference").to_dict()["loss"]["errors"]["mean"]
        """
        return self.found.to_dict()

    def save(self, path: str | Path) -> Path:
        """Write the report as one .html file, or the plot of the losses as .svg; returns the path.

        >>> trainer.align("runs/reference").save("report.html")
        """
        place = Path(path)
        check_report_name("path", place)
        write_report(self.found, place)
        return place

    def __repr__(self) -> str:
        return comparison_text(self.found)

    def _repr_html_(self) -> str:
        """The curves are pictures by themselves, so that their style stays theirs."""
        drawn = draw_sheet([loss_plot(self.found), error_plot(self.found)])
        source = f"data:image/svg+xml;base64,{b64encode(drawn.encode()).decode()}"
        picture = f'<img alt="the losses, and the error by step" style="max-width: 860px" src="{source}">'
        return f"<pre>{html.escape(repr(self))}</pre>{'' if self.found.errors is None else picture}"
