"""The composers of the playground as cases: one entry for each shape, to be crossed with what may go wrong.

A new shape is one more line in `SHAPES`. A variant of a page, which is not worth a flow of its own, is a class below.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from flows.playground_shapes import PlaygroundConfirm, PlaygroundEditor, PlaygroundEnter


class EnterByKeydown(PlaygroundEnter):
    """A handler sends with fetch as soon as the key goes down."""

    name = "shape-enter-keydown"
    composer = "/enter/new?by=keydown"


class EnterByKeyup(PlaygroundEnter):
    name = "shape-enter-keyup"
    composer = "/enter/new?by=keyup"


class EnterTwice(PlaygroundEnter):
    """A handler sends with fetch, and the form submits as well: two requests for one key."""

    name = "shape-enter-twice"
    composer = "/enter/new?by=both"


class EditorSandboxed(PlaygroundEditor):
    """The editor's frame has an origin of its own."""

    name = "shape-editor-sandboxed"
    composer = "/editor/new?frame=sandboxed"


class ConfirmAndSaysMore(PlaygroundConfirm):
    """Another dialog opens while the answer is awaited."""

    name = "shape-confirm-late"
    composer = "/confirm/new?late"


@dataclass(frozen=True)
class Shape:
    """`flow` as a person would name it to `interlock propose`; `account` composes and publishes. `picture` says that
    the payload holds an image; `of` names the shape that this one is a variant of."""

    name: str
    flow: str
    account: str = "editor"
    picture: bool = False
    of: str = ""


def variant(flow: type[PlaygroundEnter | PlaygroundEditor | PlaygroundConfirm]) -> str:
    return f"{Path(__file__)}:{flow.__name__}"


SHAPES = (
    Shape("enter", "playground-enter"),
    Shape("enter-keydown", variant(EnterByKeydown), of="enter"),
    Shape("enter-keyup", variant(EnterByKeyup), of="enter"),
    Shape("enter-twice", variant(EnterTwice), of="enter"),
    Shape("confirm", "playground-confirm"),
    Shape("confirm-late", variant(ConfirmAndSaysMore), of="confirm"),
    Shape("popup", "playground-popup"),
    Shape("hidden", "playground-hidden"),
    Shape("editor", "playground-editor"),
    Shape("editor-sandboxed", variant(EditorSandboxed), of="editor"),
    Shape("nested", "playground-nested"),
    Shape("link", "playground-link"),
    Shape("graph", "playground-graph"),
    Shape("photo", "playground-photo", picture=True),
    Shape("review", "playground-review"),
    Shape("keyed", "playground-keyed"),
)
