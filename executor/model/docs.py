"""The reference parts of `docs/model.md`, as Markdown made from the model itself, so that they cannot say otherwise.

Pure functions without parameters; `tools/docs.py` calls them. They print what the tables hold and decide nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from itertools import product
from typing import Any

from executor.errors import Exit
from executor.model import failure, retry, transitions
from executor.model.admission import Refusal
from executor.model.ending import code
from executor.model.failure import FailureClass
from executor.model.operation import (
    Actor,
    ActorKind,
    Attempt,
    Disposition,
    FlowBinding,
    Intent,
    Operation,
    Policy,
)
from executor.model.reasons import Halt, NotSent, Unsure
from executor.model.retry import Eligibility, KeyFacts
from executor.model.step_table import STEPS, Shape
from executor.model.transitions import Dispatch, Event, Outcome, Permission, State, Transmission
from executor.model.verdict import Discrepancy

_DIMENSIONS: Mapping[str, Mapping[Any, Mapping[Event, Any]]] = {
    "permission": transitions.PERMISSION,
    "dispatch": transitions.DISPATCH,
    "transmission": transitions.TRANSMISSION,
    "outcome": transitions.OUTCOME,
}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table. Cells may hold Markdown; a bar in a cell is escaped."""
    lines = [list(heads), ["---"] * len(heads), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def state_tables() -> str:
    """One table per dimension: state, event, state after."""
    parts = []
    for name, rows in _DIMENSIONS.items():
        body = [
            (_named(state), f"`{event.value}`", "unchanged" if after == state else _named(after))
            for state, row in rows.items()
            for event, after in row.items()
        ]
        body += [(_named(state), "none", "final") for state, row in rows.items() if not row]
        parts.append(f"#### {name.capitalize()}\n\n" + table(("state", "event", "after"), body))
    return "\n\n".join(parts)


def state_diagrams() -> str:
    """One Mermaid diagram per dimension. Events that leave a state as it is are in the tables only."""
    parts = []
    for name, rows in _DIMENSIONS.items():
        arrows: dict[tuple[str, str], list[str]] = {}
        for state, row in rows.items():
            for event, after in row.items():
                if after != state:
                    arrows.setdefault((_node(state), _node(after)), []).append(event.value)
        lines = ["stateDiagram-v2", f"    [*] --> {_node(next(iter(rows)))}"]
        lines += [f"    {source} --> {target}: {', '.join(events)}" for (source, target), events in arrows.items()]
        parts.append(f"#### {name.capitalize()}\n\n```mermaid\n" + "\n".join(lines) + "\n```")
    return "\n\n".join(parts)


def joint_states() -> str:
    """Every joint state that may exist, permissions gathered."""
    rows = []
    for dispatch, transmission, outcome in product(Dispatch, (None, *Transmission), Outcome):
        permissions = [p for p in Permission if not transitions.illegal(State(p, dispatch, transmission, outcome))]
        if permissions:
            shown = "any" if permissions == list(Permission) else ", ".join(f"`{p.value}`" for p in permissions)
            rows.append((f"`{dispatch.value}`", _named(transmission), f"`{outcome.value}`", shown))
    return table(("dispatch", "transmission", "outcome", "permission"), rows)


def step_table() -> str:
    """The 17 steps: what the record says after each, and after recovery from a crash during each."""
    rows = [
        (
            str(step.number),
            step.name,
            step.does,
            ", ".join(f"`{moment}`" for moment in step.moments),
            _shapes(step.after),
            _shapes(step.after_crash),
        )
        for step in STEPS
    ]
    return table(("step", "name", "what it does", "moments", "after it", "after a crash in it"), rows)


def refusals() -> str:
    """Admission's reasons in their order."""
    rows = [(str(n), f"`{one.value}`", one.sentence) for n, one in enumerate(Refusal, start=1)]
    return table(("order", "reason", "what a person reads"), rows)


def reasons() -> str:
    """How runs end: before the claim, proven not sent, unsure."""
    kinds: tuple[tuple[str, type[Halt] | type[NotSent] | type[Unsure]], ...] = (
        ("Halted before the claim", Halt),
        ("Proven not sent", NotSent),
        ("Unsure", Unsure),
    )
    return "\n\n".join(
        f"#### {title}\n\n" + table(("reason", "what a person reads"), [(f"`{r.value}`", r.sentence) for r in kind])
        for title, kind in kinds
    )


def failure_classes() -> str:
    """The classes in their order, their one response, and which reasons lead to each where nothing left the machine."""
    kinds: tuple[type[Halt] | type[NotSent] | type[Unsure] | type[Refusal], ...] = (Halt, NotSent, Unsure, Refusal)
    members: dict[FailureClass, list[str]] = {one: [] for one in FailureClass}
    for kind in kinds:
        for reason in kind:
            found = failure.classify(reason, Outcome.UNOBSERVED)
            if found is not None:
                members[found].append(f"`{code(reason)}`")
    members[FailureClass.UNCERTAIN_ACTION].insert(0, "every outcome `unknown`")
    members[FailureClass.STOP].insert(0, "every outcome `rejected`")
    rows = [
        (str(n), f"`{one.value}`", one.response, ", ".join(dict.fromkeys(members[one])))
        for n, one in enumerate(FailureClass, start=1)
    ]
    return table(("order", "class", "response", "reasons"), rows)


def retry_table() -> str:
    """Every policy after every closed attempt, with the facts that change the answer."""
    rows = []
    for title, state, attempts, facts in _CASES:
        for policy in Policy:
            record = _operation(state, policy, attempts)
            for when, answer in _branches(record, facts):
                permits, reason = answer.permits.value, answer.reason.value
                rows.append((title, f"`{policy.value}`", when, f"`{permits}`", f"`{reason}`"))
    return table(("after", "policy", "when", "what permits another attempt", "reason"), rows)


def discrepancies() -> str:
    """Evidence that does not fit together."""
    return table(("discrepancy", "meaning"), [(f"`{one.value}`", _DISCREPANCIES[one]) for one in Discrepancy])


def exit_codes() -> str:
    """The command's exit codes."""
    return table(("code", "name", "meaning"), [(str(c.value), f"`{c.name.lower()}`", _EXITS[c]) for c in Exit])


_DISCREPANCIES: Mapping[Discrepancy, str] = {
    Discrepancy.DUPLICATE: "more than one new item matches after one attempt",
    Discrepancy.ANSWER_AND_VIEW_DIFFER: "the answer names one item, a view shows another, or the same unfinished",
    Discrepancy.NOT_APPLIED_BUT_SEEN: "the answer says that it was not applied, a view shows a new item",
    Discrepancy.DONE_BUT_ABSENT: "the answer names an item, a complete listing after the window is without it",
    Discrepancy.SEEN_AND_ABSENT: "one view shows a new item, a complete listing after the window is without it",
    Discrepancy.NOT_NEW: "the answer names an item that was published before the attempt",
    Discrepancy.CONTENT_DIFFERS: "the item that the answer names is there with other content",
}

_EXITS: Mapping[Exit, str] = {
    Exit.SUCCEEDED: "the effect is established by evidence",
    Exit.USAGE: "the command cannot be read or its input cannot be used; nothing was dispatched",
    Exit.ACCEPTED: "the site took it in and has not finished it",
    Exit.UNKNOWN: "it may have happened; a handoff is written",
    Exit.REJECTED: "evidence says that the effect did not take place",
    Exit.REFUSED: "refused by policy before dispatch; a second run prints the stored receipt",
    Exit.NOT_SENT: "an attempt was made and is proven not sent",
    Exit.ALTERED: "`interlock evidence verify`: something is altered or missing",
    Exit.DEFECT: "a defect, or surroundings that are not fit, before the claim",
}

_FACTS: Mapping[str, tuple[str, str]] = {
    "absence": ("absence is proven", "a clause says so"),
    "ended": ("reconciliation has ended", "reconciliation goes on"),
    "key": ("the key makes it safe", "the key is not shown to"),
}
"""Facts beside the record, in words: when they hold, when not."""


def _branches(record: Operation, facts: tuple[str, ...]) -> list[tuple[str, Eligibility]]:
    """The answers by the facts that make a difference, in words."""

    def answer(held: Mapping[str, bool]) -> Eligibility:
        shown = KeyFacts(
            honoured=True, same_terms=True, alone=True, same_fields=True, inside_lifetime=True, attempts_left=1
        )
        return retry.eligibility(
            record,
            key=shown if held.get("key") else None,
            reconciliation_ended=held.get("ended", False),
            rejected_by_absence=held.get("absence", False),
        )

    def below(held: dict[str, bool], left: tuple[str, ...]) -> list[tuple[dict[str, bool], Eligibility]]:
        if not left:
            return [(held, answer(held))]
        yes, no = (below({**held, left[0]: value}, left[1:]) for value in (True, False))
        if [one for _, one in yes] == [one for _, one in no]:
            return [({name: held[name] for name in held if name != left[0]}, one) for held, one in yes]
        return yes + no

    return [
        (" and ".join(_FACTS[name][0 if value else 1] for name, value in held.items()), one)
        for held, one in below({}, facts)
    ]


def _closed(transmission: Transmission, outcome: Outcome) -> State:
    return State(Permission.AUTHORIZED, Dispatch.COMPLETED, transmission, outcome)


_N, _P, _A = Transmission.NONE_PROVEN, Transmission.POSSIBLE, Transmission.ANSWERED

_CASES: tuple[tuple[str, State, tuple[tuple[Transmission, bool], ...], tuple[str, ...]], ...] = (
    ("no attempt yet", State(Permission.AUTHORIZED), (), ()),
    (
        "an attempt is open",
        State(Permission.AUTHORIZED, Dispatch.STARTED, _N, Outcome.UNOBSERVED),
        ((_N, False),),
        (),
    ),
    ("proven not sent, never released", _closed(_N, Outcome.UNOBSERVED), ((_N, False),), ("key",)),
    ("proven not sent, released", _closed(_N, Outcome.UNOBSERVED), ((_N, True),), ("key",)),
    (
        "proven not sent, after an earlier attempt whose absence was proven",
        _closed(_N, Outcome.UNOBSERVED),
        ((_P, True), (_N, False)),
        ("key",),
    ),
    ("`unknown`", _closed(_P, Outcome.UNKNOWN), ((_P, True),), ("ended", "key")),
    ("`rejected`", _closed(_A, Outcome.REJECTED), ((_A, True),), ("absence", "key")),
    ("`accepted`", _closed(_A, Outcome.ACCEPTED), ((_A, True),), ()),
    ("`succeeded`", _closed(_A, Outcome.SUCCEEDED), ((_A, True),), ()),
)
"""Title, state, the attempts (transmission, released) and the facts that may matter."""


def _operation(state: State, policy: Policy, attempts: tuple[tuple[Transmission, bool], ...]) -> Operation:
    """A record to ask the retry decision about; only state, policy and attempts matter to it."""
    when = datetime(2000, 1, 1, tzinfo=UTC)
    return Operation(
        id="example",
        intent=Intent(task="", action="", destination="", account="", flow="", payload={}, material={}, common={}),
        fingerprint="",
        identity="",
        policy=policy,
        provider_key=None,
        flow=FlowBinding(name="", version="", code_digest=""),
        state=state,
        disposition=Disposition.OPEN,
        proposed_by=Actor(ActorKind.PERSON, ""),
        created_at=when,
        version=0,
        head="",
        attempts=tuple(
            Attempt(
                id="",
                operation="example",
                number=number,
                approval="",
                holder="",
                token=0,
                transmission=transmission,
                claimed_at=when,
                released_at=when if released else None,
            )
            for number, (transmission, released) in enumerate(attempts, start=1)
        ),
    )


def _named(state: StrEnum | None) -> str:
    return "none" if state is None else f"`{state.value}`"


def _node(state: StrEnum | None) -> str:
    return "none" if state is None else state.value


def _shapes(shapes: tuple[Shape, ...]) -> str:
    """Shapes with the same dispatch and transmission in one line each."""
    lines: dict[str, list[str]] = {}
    for dispatch, transmission, outcome in dict.fromkeys(shapes):
        sent = "" if transmission is None else f" ({transmission.value})"
        lines.setdefault(f"{dispatch.value}{sent}", []).append(outcome.value)
    return "<br>".join(f"{place}: {', '.join(outcomes)}" for place, outcomes in lines.items())
