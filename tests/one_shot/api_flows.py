"""Editors of the playground that go wrong in what they send, as flows: by the address of their page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from flows.effect import AbsenceGuarantee
from flows.flow import Flow
from flows.playground import PlaygroundForm
from flows.playground_api import PlaygroundGraph, PlaygroundPhoto


class GraphTwo(PlaygroundGraph):
    """Two mutations in one document."""

    name = "graph-two"
    composer = "/graph/new?how=two"


class GraphBatch(PlaygroundGraph):
    """The same call twice in one batch."""

    name = "graph-batch"
    composer = "/graph/new?how=batch"


class GraphInline(PlaygroundGraph):
    """Another title in the document than in the variables."""

    name = "graph-inline"
    composer = "/graph/new?how=inline"


class GraphGet(PlaygroundGraph):
    """The mutation in the address of a GET."""

    name = "graph-get"
    composer = "/graph/new?how=get"


class GraphStored(PlaygroundGraph):
    """The digest of an operation in the place of its text."""

    name = "graph-stored"
    composer = "/graph/new?how=stored"


class PhotoShrunk(PlaygroundPhoto):
    """The page sends another picture than was chosen."""

    name = "photo-shrunk"
    composer = "/photo/new?shrink"


class SlowList(PlaygroundForm):
    """Of a site that says how long its list may lag."""

    name = "slow-list"
    contract = replace(
        PlaygroundForm.contract,
        absence=AbsenceGuarantee(view="mine", consistency_window_s=600, statement="The list may lag by ten minutes."),
    )


def reference(flow: type[Flow[Any]]) -> str:
    """As a person would name it to `interlock propose`."""
    return f"{Path(__file__)}:{flow.__name__}"
