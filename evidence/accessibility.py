"""The page as assistive technology is told of it: an indented text of roles, names, values and states. Pure."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from evidence.redaction import Kind, Tally

MEDIA_TYPE = "text/plain; charset=utf-8"
_PROMOTED = frozenset({"none", "generic", "InlineTextBox", "presentation"})
_STATES = (
    "checked",
    "pressed",
    "selected",
    "expanded",
    "disabled",
    "required",
    "invalid",
    "readonly",
    "level",
    "modal",
    "busy",
)


def render(trees: Sequence[tuple[str, int, Any]], hidden: Set[int], tally: Tally) -> str:
    """One line per node, two spaces a level; a hidden node shows its role and a mask, nothing of what is inside.

    `trees` are (frame id, backend node id of the frame's element, nodes of ``Accessibility.getFullAXTree``), the main
    document first; a child document stands under its element.
    """
    inside = {owner: nodes for _, owner, nodes in trees[1:]}
    lines: list[str] = []
    waiting = [(node, known, 0, ("", "")) for known in [_by_id(trees[0][2])] for node in _roots(trees[0][2])]
    while waiting:
        node, known, depth, said = waiting.pop()
        role = str(node.get("role", {}).get("value", ""))
        name = " ".join(str(node.get("name", {}).get("value") or "").split())
        backend = node.get("backendDOMNodeId")
        if backend in hidden:
            if not node.get("ignored"):
                lines.append(f"{'  ' * depth}- {role} {tally.mask(Kind.REGION, 'accessibility')}")
            continue
        shown = not node.get("ignored") and not (role in _PROMOTED and not name) and role != "InlineTextBox"
        if shown and role == "StaticText":
            if name and name not in said:
                lines.append(f"{'  ' * depth}- text: {name}")
            continue
        if shown:
            lines.append("  " * depth + _line(node, role, name))
        below = depth + 1 if shown else depth
        children = [(known[child], known) for child in node.get("childIds", ()) if child in known]
        if backend in inside:
            nodes = inside.pop(backend)
            own = _by_id(nodes)
            children += [(root, own) for root in _roots(nodes)]
        if shown:
            said = (name, _value(node))
        waiting.extend((child, own, below, said) for child, own in reversed(children))
    return "\n".join(lines) + "\n"


def _by_id(nodes: Any) -> dict[str, Any]:
    return {node["nodeId"]: node for node in nodes}


def _roots(nodes: Any) -> list[Any]:
    return [node for node in nodes if "parentId" not in node][::-1]


def _line(node: Any, role: str, name: str) -> str:
    states = []
    for one in node.get("properties") or ():
        value = one.get("value", {}).get("value")
        if one.get("name") in _STATES and value not in (False, "false", None, ""):
            states.append(one["name"] if value is True or value == "true" else f"{one['name']}={value}")
    line = f"- {role[:1].lower()}{role[1:]}"
    if name:
        line += f' "{name}"'
    if states:
        line += f" [{' '.join(states)}]"
    value = _value(node)
    return f"{line}: {value}" if value else line


def _value(node: Any) -> str:
    return " ".join(str(node.get("value", {}).get("value") or "").split())
