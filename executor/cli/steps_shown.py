"""The 17 steps of a run as they happen: a live list on a terminal, one line per step elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from executor.cli.surroundings import cell
from executor.model.step_table import STEPS

if TYPE_CHECKING:
    from executor.one_shot.run import StepEvent

_MARKS = {
    "waiting": ("·", "dim"),
    "begun": ("▸", "bold"),
    "done": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "ended": ("■", "bold yellow"),
}


_ENDS = {"done": "done", "failed": "failed", "halted": "ended"}
"""The moments that end a step, and how it is then marked."""


class StepsShown:
    """A context manager; hand `hear` to the executor. Never raises for an event that it does not know."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._state = {step.number: "waiting" for step in STEPS}
        self._notes: dict[int, str] = {}
        self._live = (
            Live(self.render(), console=console, refresh_per_second=8, transient=False) if console.is_terminal else None
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What was begun and not done is where the run ended."""
        for number, state in self._state.items():
            if state == "begun":
                self._state[number] = "ended"
                if self._live is None:
                    self._line(number)
        if self._live is not None:
            self._live.update(self.render())
            self._live.stop()

    def hear(self, event: StepEvent) -> None:
        """Take in one event of the run."""
        if event.number not in self._state:
            return
        if event.moment == "begin":
            self._state[event.number] = "begun"
        elif event.moment in _ENDS:
            self._state[event.number] = _ENDS[event.moment]
            self._notes.pop(event.number, None)
        if event.detail:
            self._notes[event.number] = event.detail
        elif event.moment not in ("begin", "note", *_ENDS):
            self._notes[event.number] = event.moment
        if self._live is not None:
            self._live.update(self.render())
        elif event.moment in _ENDS:
            self._line(event.number)

    def _line(self, number: int) -> None:
        mark, _ = _MARKS[self._state[number]]
        note = self._notes.get(number, "")
        self._console.print(cell(f"{mark} {number:>2} {STEPS[number - 1].name:<9}{note}".rstrip()), soft_wrap=True)

    def render(self) -> RenderableType:
        """The list as it stands."""
        table = Table(box=None, show_header=False, pad_edge=False, expand=True)
        table.add_column(width=1)
        table.add_column(justify="right", style="dim", width=2)
        table.add_column(width=max(len(step.name) for step in STEPS))
        table.add_column(style="dim", ratio=1)
        for step in STEPS:
            state = self._state[step.number]
            mark, style = _MARKS[state]
            note = cell(self._notes.get(step.number, "") or step.does)
            if state not in ("failed", "ended"):  # why it ended is shown whole; the rest keeps to its line
                note.no_wrap, note.overflow = True, "ellipsis"
            table.add_row(
                cell(mark, style),
                str(step.number),
                cell(step.name, style if state in ("waiting", "failed", "ended") else ""),
                note,
            )
        return table
