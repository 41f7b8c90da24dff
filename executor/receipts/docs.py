"""The reference parts of `docs/receipts.md`, as Markdown made from the enums. `tools/docs.py` calls them."""

from __future__ import annotations

from executor.model.docs import table
from executor.receipts.guidance import ActionPermitted, ActionProhibited, Standing
from executor.receipts.words import verdict_line


def standings() -> str:
    """The first line of a receipt for each standing."""
    rows = [(f"`{one.value}`", verdict_line(one, "publish-post", None, None)) for one in Standing]
    return table(("standing", "first line"), rows)


def permitted_actions() -> str:
    """What a receipt may permit."""
    return table(("action", "sentence"), [(f"`{one.value}`", one.sentence) for one in ActionPermitted])


def prohibited_actions() -> str:
    """What a receipt may prohibit."""
    return table(("action", "sentence"), [(f"`{one.value}`", one.sentence) for one in ActionProhibited])
