"""What a benchmark reports: its tables, and its figures beside those of peers for the one table of all benchmarks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Ours and a peer's, measured in the same run. ``wanted`` is what ``times_better`` should at least be."""

    what: str
    peer: str
    ours: float
    theirs: float
    unit: str
    is_less_better: bool = True
    wanted: float | None = None

    @property
    def times_better(self) -> float:
        better, worse = (self.theirs, self.ours) if self.is_less_better else (self.ours, self.theirs)
        return better / worse


@dataclass(frozen=True)
class Report:
    markdown: str
    figures: Sequence[Figure] = ()


def table_of(reports: Mapping[str, Report]) -> str:
    lines = [
        "| benchmark | figure | pikobot | peer | times better | wanted |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, report in reports.items():
        for figure in report.figures:
            cells = [
                name,
                figure.what,
                f"{_short(figure.ours)} {figure.unit}".strip(),
                f"{_short(figure.theirs)} {figure.unit} ({figure.peer})",
                f"{figure.times_better:.2f}",
                "" if figure.wanted is None else f"{figure.wanted:g}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 else f"{value:.3g}"
