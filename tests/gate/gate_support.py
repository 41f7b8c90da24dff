"""What the gate's tests declare, and a door for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gate_origin import Origin

from executor.gate.port import Candidate, Hang, Refuse, Relay
from executor.gate.rules import Reason, Rules
from flows.effect import Effect, Write
from flows.wire import OutgoingRequest


def rules_for(origin: Origin, **changes: Any) -> Rules:
    """The effect is a POST to /publish that says so; drafts are supporting, /unlock is trailing."""

    def says(word: str) -> Callable[[OutgoingRequest], bool]:
        return lambda request: request.form.get("do") == word

    values: dict[str, Any] = {
        "destination_origin": origin.url,
        "effect": Effect(
            name="published", method="POST", path="/publish", matches=says("publish"), material=lambda request: {}
        ),
        "supporting": (
            Write(
                name="draft",
                method="POST",
                path="/publish",
                matches=says("draft"),
                may_cause_effect=False,
                item=lambda request, answer: None,
            ),
            Write(name="upload", method="PUT", path="/upload", matches=lambda _: True, may_cause_effect=False),
        ),
        "trailing": (
            Write(name="unlock", method="POST", path="/unlock", matches=lambda _: True, may_cause_effect=False),
        ),
        "opens": ("/list",),
    }
    return Rules(**{**values, **changes})


class RecordingDoor:
    """A door as the release is one: budget before the first await, one connection, one write, the answer."""

    def __init__(self, deadline_s: float = 10.0, budget: int = 1) -> None:
        self.deadline_s = deadline_s
        self.budget = budget
        self.candidates: list[Candidate] = []
        self.outcomes: list[Relay | Refuse | Hang] = []
        self.answers: list[Any] = []

    async def __call__(self, candidate: Candidate) -> Relay | Refuse | Hang:
        self.candidates.append(candidate)
        if not self.budget:
            return Refuse(Reason.BUDGET_SPENT)
        self.budget -= 1
        connection = await candidate.connect()
        await connection.write()
        answer = await connection.read_answer(self.deadline_s)
        self.answers.append(answer)
        outcome: Relay | Hang = Hang() if answer is None else Relay(answer)
        self.outcomes.append(outcome)
        return outcome
