"""The table of ``make failover``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.failover.judge import Figures

HEAD = (
    "case",
    "acknowledged",
    "lost",
    "twice",
    "on the old",
    "attempts lost",
    "claims unheard",
    "claims after (s)",
    "verdict",
)


@dataclass
class Result:
    """What came of a case; ``skipped`` says why it was not played."""

    case: str
    figures: Figures = field(default_factory=Figures)
    lossy: bool = False
    skipped: str = ""
    seconds: float = 0.0

    def take(self, record: dict[str, Any]) -> None:
        """The figures as the process of the case has recorded them."""
        self.figures = Figures(**record)

    @property
    def good(self) -> bool:
        """Whether all is as it must be, as far as it was tried."""
        return bool(self.skipped) or self.figures.good(lossy=self.lossy)

    def verdict(self) -> str:
        """In one word, or why not."""
        if self.skipped:
            return f"skipped: {self.skipped}"
        if not self.good:
            return "FAILED"
        return "counted" if self.lossy else "good"

    def cells(self) -> tuple[str, ...]:
        """Its row."""
        found = self.figures
        if self.skipped:
            return (self.case, *("-",) * 7, self.verdict())
        after = "-" if found.claims_after is None else f"{found.claims_after:.1f}"
        return (
            self.case,
            str(found.acknowledged),
            *map(str, found.counts()),
            str(found.unheard),
            after,
            self.verdict(),
        )

    def line(self) -> str:
        """For while the others go on."""
        return f"{' | '.join(self.cells())} | in {self.seconds:.0f} s"


def table(results: list[Result]) -> str:
    """A row for each case, then what was wrong."""
    rows = [HEAD, *(result.cells() for result in results)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    for result in results:
        found = result.figures
        told = [*found.notes, *found.wrong, *([] if result.good else found.said)]
        lines += [f"{result.case}: {line}" for line in told[:20]]
    failed = sum(not result.good for result in results)
    played = sum(not result.skipped for result in results)
    lines.append(f"{played} cases, {failed} failed, {len(results) - played} skipped")
    return "\n".join(lines)
