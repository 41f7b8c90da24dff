"""What the evidence establishes: a pure function from answer, looks, baseline and contract to an outcome (A7, D5-D8).

First cut of a function that only ever gets stricter inputs. Its rules:

1. What was proven not sent is not judged.
2. Only a complete answer under a named clause, or an establishing observation, moves an outcome. Page signs, titles
   and addresses never do.
3. An item counts as this attempt's only when it is new: its id is not in the baseline that was read before the claim.
   Without a baseline, only the provider's own id from the answer counts. An answer that names an item of the baseline
   names something older than the attempt.
4. Absence counts only under the contract's guarantee: its view, read completely, after its window (D6).
5. Contradictions are kept as a discrepancy beside the outcome; nothing is upgraded over one (D8).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from executor.model.transitions import Outcome, Transmission
from flows.effect import Says
from flows.observations import CouldNotLook, Found, Item, ItemState, NotFound, Observation, Partial, Strength


class VerdictReason(StrEnum):
    """What an outcome rests on."""

    PROVIDER_ID_IN_ANSWER = "provider_id_in_answer"
    EXACT_ITEM_SEEN = "exact_item_seen"
    ACCEPTED_BY_ANSWER = "accepted_by_answer"
    NOT_FINAL_STATE_SEEN = "not_final_state_seen"
    NOT_APPLIED_BY_CLAUSE = "not_applied_by_clause"
    ABSENT_UNDER_GUARANTEE = "absent_under_guarantee"
    CONTRADICTION = "contradiction"
    WEAK_EVIDENCE_ONLY = "weak_evidence_only"
    NOT_KNOWN_TO_BE_NEW = "not_known_to_be_new"
    ABSENCE_WITHOUT_GUARANTEE = "absence_without_guarantee"
    COULD_NOT_LOOK = "could_not_look"
    NO_EVIDENCE = "no_evidence"


class Discrepancy(StrEnum):
    """Evidence that does not fit together; a person reviews it (D8)."""

    DUPLICATE = "duplicate"
    """More than one new item matches after one attempt."""
    ANSWER_AND_VIEW_DIFFER = "answer_and_view_differ"
    NOT_APPLIED_BUT_SEEN = "not_applied_but_seen"
    DONE_BUT_ABSENT = "done_but_absent"
    SEEN_AND_ABSENT = "seen_and_absent"
    """One look shows a new item, another is a complete listing after the window without it."""
    NOT_NEW = "not_new"
    """The answer names an item that was published before the attempt."""
    CONTENT_DIFFERS = "content_differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the contract reads in a complete answer. `evidence` names the stored items that hold it."""

    says: Says
    clause: str
    item: str | None = None
    url: str | None = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One view's observation. `after_s`: seconds between the last moment at which the effect could have left and the
    start of the look, by one clock."""

    view: str
    observation: Observation
    after_s: float
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """The contract's absence guarantee, without its sentence."""

    view: str
    window_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    outcome: Outcome
    reason: VerdictReason
    why: str
    item: str | None = None
    url: str | None = None
    evidence: tuple[str, ...] = ()
    discrepancy: Discrepancy | None = None


def verdict(
    *,
    transmission: Transmission,
    reading: Reading | None,
    looks: Sequence[Look],
    baseline: frozenset[str] | None,
    account: str,
    guarantee: Guarantee | None,
    sent_before: bool = False,
) -> Verdict | None:
    """The outcome that the evidence supports, or None when there is nothing to judge (`none_proven`).

    `reading` is None without a complete answer, and is not looked at unless the transmission is `answered`. `baseline`
    holds the ids of the published list before the claim, None when they could not be read. `sent_before` says that an
    earlier attempt of the operation may have been sent: then the baseline is the one that was read before that, and
    an answer that says "not applied" is about this request alone and establishes nothing about the operation.
    """
    if transmission is Transmission.NONE_PROVEN:
        return None
    if transmission is not Transmission.ANSWERED:
        reading = None
    seen = _Seen.of(looks, reading, baseline, account, guarantee)
    says = reading.says if reading is not None else Says.NOTHING
    match says:
        case Says.DONE if reading is not None and reading.item:
            return _done(reading, reading.item, seen, baseline)
        case Says.ACCEPTED if reading is not None:
            return _accepted(reading, seen)
        case Says.NOT_APPLIED if reading is not None and not sent_before:
            return _not_applied(reading, seen)
        case _:
            return _by_looking(seen)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The looks, sorted by what they can carry."""

    new: tuple[tuple[Item, tuple[str, ...]], ...]
    """Establishing, published, of this account, not in the baseline; with the evidence of the look. One per id."""
    not_final: tuple[tuple[Item, tuple[str, ...]], ...]
    """The same, in another state than published. Drafts are left out: `prepare` leaves them behind, whatever came of
    the effect."""
    absent: tuple[str, ...] | None
    """Evidence of an absence that counts, None when there is none."""
    wanted: str | None
    """The id that the answer names."""
    named: tuple[Item, ...]
    """The item that the answer names, wherever a view shows it."""
    weak: bool
    altered: bool
    """An item that is new, or may be, and matches in part: the site may have changed what it was given."""
    unplaced: bool
    """An establishing item that may be older: there is no baseline."""
    looked: bool
    failed: bool

    @classmethod
    def of(
        cls,
        looks: Sequence[Look],
        reading: Reading | None,
        baseline: frozenset[str] | None,
        account: str,
        guarantee: Guarantee | None,
    ) -> _Seen:
        new: dict[str, tuple[Item, tuple[str, ...]]] = {}
        not_final: dict[str, tuple[Item, tuple[str, ...]]] = {}
        absent: tuple[str, ...] | None = None
        named: list[Item] = []
        weak = altered = unplaced = looked = failed = False
        wanted = reading.item if reading is not None else None
        for look in looks:
            observation = look.observation
            if isinstance(observation, CouldNotLook):
                failed = True
                continue
            looked = True
            if _absence_counts(look, observation, guarantee, baseline):
                absent = look.evidence
            if isinstance(observation, NotFound):
                continue
            for item in observation.items:
                if item.id == wanted:
                    named.append(item)
                known_new = item.id not in baseline if baseline is not None else item.id == wanted
                if not item.strength.establishes or item.account != account:
                    weak = True
                    if item.strength is Strength.PARTIAL and item.id not in (baseline or ()):
                        altered = True
                elif item.state is not ItemState.PUBLISHED:
                    if known_new and item.state is not ItemState.DRAFT:
                        not_final.setdefault(item.id, (item, look.evidence))
                elif known_new:
                    new.setdefault(item.id, (item, look.evidence))
                elif baseline is None:
                    unplaced = True
        return cls(
            tuple(new.values()),
            tuple(not_final.values()),
            absent,
            wanted,
            tuple(named),
            weak,
            altered,
            unplaced,
            looked,
            failed,
        )

    @property
    def queued(self) -> tuple[tuple[Item, tuple[str, ...]], ...]:
        """Taken in and not finished."""
        return tuple(one for one in self.not_final if one[0].state in (ItemState.QUEUED, ItemState.SCHEDULED))

    @property
    def matching(self) -> tuple[str, ...]:
        """The ids of what this attempt may have brought about, published or on the way."""
        return tuple(sorted({item.id for item, _ in self.new + self.queued}))

    @property
    def evidence(self) -> tuple[str, ...]:
        """Of every look that shows something new, each once."""
        return tuple(dict.fromkeys(e for _, es in self.new + self.not_final for e in es))

    @property
    def named_differs(self) -> bool:
        """Whether a view shows the item that the answer names, and not as it was approved."""
        return any(item.strength is Strength.PARTIAL for item in self.named)

    @property
    def named_unfinished(self) -> Item | None:
        """The item that the answer names, where the account's own view shows it in another state than published and
        none shows it published."""
        own = [item for item in self.named if item.strength.establishes]
        if any(item.state is ItemState.PUBLISHED for item in own):
            return None
        return own[0] if own else None


def _absence_counts(
    look: Look, observation: NotFound | Found | Partial, guarantee: Guarantee | None, baseline: frozenset[str] | None
) -> bool:
    """A complete listing, in the view and after the window of the guarantee, that shows nothing which was not there
    before the claim. An older item of the same material does not stand in the way."""
    if guarantee is None or look.view != guarantee.view or not look.after_s >= guarantee.window_s:
        return False
    match observation:
        case NotFound(complete=complete):
            return complete
        case Found(complete=True, items=items):
            return baseline is not None and all(item.id in baseline for item in items)
        case _:
            return False


def _done(reading: Reading, item: str, seen: _Seen, baseline: frozenset[str] | None) -> Verdict:
    evidence = reading.evidence + seen.evidence

    def contradiction(why: str, discrepancy: Discrepancy, more: tuple[str, ...] = ()) -> Verdict:
        return Verdict(
            outcome=Outcome.UNKNOWN,
            reason=VerdictReason.CONTRADICTION,
            why=why,
            evidence=evidence + more,
            discrepancy=discrepancy,
        )

    if baseline is not None and item in baseline:
        return contradiction(
            f"The answer names item {item}, which was published before this attempt.", Discrepancy.NOT_NEW
        )
    if seen.matching and item not in seen.matching:
        return contradiction(
            f"The answer names item {item}, the site shows {', '.join(seen.matching)} as new.",
            Discrepancy.ANSWER_AND_VIEW_DIFFER,
        )
    if (unfinished := seen.named_unfinished) is not None:
        return contradiction(
            f"The answer says that item {item} is finished, the site shows it as {unfinished.state.value}.",
            Discrepancy.ANSWER_AND_VIEW_DIFFER,
        )
    if seen.absent is not None:
        return contradiction(
            f"The answer names item {item}, and a complete listing after the window does not hold it.",
            Discrepancy.DONE_BUT_ABSENT,
            seen.absent,
        )
    if seen.named_differs and item not in seen.matching:
        return contradiction(
            f"The answer says that item {item} is finished, the site shows it with other content than was approved.",
            Discrepancy.CONTENT_DIFFERS,
        )
    discrepancy = None
    if len(seen.matching) > 1:
        discrepancy = Discrepancy.DUPLICATE
    elif seen.named_differs:
        discrepancy = Discrepancy.CONTENT_DIFFERS
    return Verdict(
        outcome=Outcome.SUCCEEDED,
        reason=VerdictReason.PROVIDER_ID_IN_ANSWER,
        why=f"The answer gives the provider's id {item} in its documented final state ({reading.clause}).",
        item=item,
        url=reading.url,
        evidence=evidence,
        discrepancy=discrepancy,
    )


def _accepted(reading: Reading, seen: _Seen) -> Verdict:
    other = reading.item is not None and bool(seen.matching) and reading.item not in seen.matching
    if len(seen.new) == 1 and len(seen.matching) == 1 and not other:
        return _by_looking(seen)
    discrepancy = None
    if len(seen.matching) > 1:
        discrepancy = Discrepancy.DUPLICATE
    elif other:
        discrepancy = Discrepancy.ANSWER_AND_VIEW_DIFFER
    elif seen.named_differs:
        discrepancy = Discrepancy.CONTENT_DIFFERS
    return Verdict(
        outcome=Outcome.ACCEPTED,
        reason=VerdictReason.ACCEPTED_BY_ANSWER,
        why=f"The site has taken it in and not finished it ({reading.clause}).",
        item=reading.item,
        url=reading.url,
        evidence=reading.evidence + seen.evidence,
        discrepancy=discrepancy,
    )


def _not_applied(reading: Reading, seen: _Seen) -> Verdict:
    if seen.new or seen.not_final:
        shown = ", ".join(sorted({item.id for item, _ in seen.new + seen.not_final}))
        return Verdict(
            outcome=Outcome.UNKNOWN,
            reason=VerdictReason.CONTRADICTION,
            why=f"The answer says that it was not applied ({reading.clause}), and the site shows {shown} as new.",
            evidence=reading.evidence + seen.evidence,
            discrepancy=Discrepancy.NOT_APPLIED_BUT_SEEN,
        )
    return Verdict(
        outcome=Outcome.REJECTED,
        reason=VerdictReason.NOT_APPLIED_BY_CLAUSE,
        why=f"The site states that the effect did not take place ({reading.clause}).",
        evidence=reading.evidence,
    )


def _by_looking(seen: _Seen) -> Verdict:
    def unknown(reason: VerdictReason, why: str, **more: object) -> Verdict:
        return Verdict(outcome=Outcome.UNKNOWN, reason=reason, why=why, **more)  # type: ignore[arg-type]

    if len(seen.matching) > 1:
        return unknown(
            VerdictReason.CONTRADICTION,
            f"More than one new item matches: {', '.join(seen.matching)}.",
            evidence=seen.evidence,
            discrepancy=Discrepancy.DUPLICATE,
        )
    if seen.wanted is not None and seen.matching and seen.wanted not in seen.matching:
        return unknown(
            VerdictReason.CONTRADICTION,
            f"The answer names item {seen.wanted}, the site shows {seen.matching[0]} as new.",
            evidence=seen.evidence,
            discrepancy=Discrepancy.ANSWER_AND_VIEW_DIFFER,
        )
    if seen.new and seen.absent is not None:
        return unknown(
            VerdictReason.CONTRADICTION,
            f"One view shows the new item {seen.matching[0]}, a complete listing after the window does not hold it.",
            evidence=seen.evidence + seen.absent,
            discrepancy=Discrepancy.SEEN_AND_ABSENT,
        )
    if seen.new:
        item, evidence = seen.new[0]
        return Verdict(
            outcome=Outcome.SUCCEEDED,
            reason=VerdictReason.EXACT_ITEM_SEEN,
            why=f"The account's own view shows the new item {item.id}, published, with the approved material.",
            item=item.id,
            url=item.url,
            evidence=evidence,
        )
    if seen.queued:
        item, evidence = seen.queued[0]
        return Verdict(
            outcome=Outcome.ACCEPTED,
            reason=VerdictReason.NOT_FINAL_STATE_SEEN,
            why=f"The account's own view shows the new item {item.id} as {item.state.value}.",
            item=item.id,
            url=item.url,
            evidence=evidence,
        )
    if seen.not_final:
        item, evidence = seen.not_final[0]
        return unknown(
            VerdictReason.NOT_FINAL_STATE_SEEN,
            f"The new item {item.id} is there, neither published nor on the way ({item.state.value}).",
            evidence=evidence,
        )
    if seen.absent is not None and not seen.unplaced and not seen.altered:
        return Verdict(
            outcome=Outcome.REJECTED,
            reason=VerdictReason.ABSENT_UNDER_GUARANTEE,
            why="A complete listing after the contract's window does not hold it.",
            evidence=seen.absent,
        )
    if seen.unplaced:
        return unknown(
            VerdictReason.NOT_KNOWN_TO_BE_NEW, "A matching item is there, but it may have been there before."
        )
    if seen.weak:
        return unknown(VerdictReason.WEAK_EVIDENCE_ONLY, "Something like it is there, too weak to count.")
    if seen.looked:
        return unknown(VerdictReason.ABSENCE_WITHOUT_GUARANTEE, "It was not found, and that proves nothing here.")
    if seen.failed:
        return unknown(VerdictReason.COULD_NOT_LOOK, "No view could look.")
    return unknown(VerdictReason.NO_EVIDENCE, "There is neither an answer that says something nor a look.")
