"""The tree of an append-only log: what stands in it can be proven, and that nothing of it was taken out (RFC 9162
section 2.1, SHA-256).

Pure functions over hashes, and `Frontier`, which grows by one leaf in logarithmic work. Nothing here stores a log or
knows what its entries mean.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

EMPTY_ROOT = hashlib.sha256(b"").digest()
"""The root of a log without an entry."""


def leaf_hash(entry: bytes) -> bytes:
    """The hash of one entry. Its prefix keeps a leaf from being taken for a node."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


@dataclass(frozen=True)
class Frontier:
    """The roots of the whole subtrees that a log of `size` entries consists of, the largest first."""

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def with_leaf(self, leaf: bytes) -> Frontier:
        """The log with one entry more, given by its leaf hash."""
        return self.with_leaves((leaf,))

    def with_leaves(self, leaves: Sequence[bytes]) -> Frontier:
        """The log with these entries more, given by their leaf hashes."""
        peaks, size = list(self.peaks), self.size
        for leaf in leaves:
            grown, carry = leaf, size
            while carry & 1:
                grown = node_hash(peaks.pop(), grown)
                carry >>= 1
            peaks.append(grown)
            size += 1
        return Frontier(size, tuple(peaks))

    @property
    def root(self) -> bytes:
        if not self.peaks:
            return EMPTY_ROOT
        root = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            root = node_hash(peak, root)
        return root


def root_of(leaves: Sequence[bytes]) -> bytes:
    """The root over leaf hashes in their order."""
    return Frontier().with_leaves(leaves).root


def inclusion_proof(leaves: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """The path by which `verify_inclusion` comes from leaf `index` to the root of `leaves` (section 2.1.3.1)."""
    if not 0 <= index < len(leaves):
        raise IndexError(f"there is no entry {index} in a log of {len(leaves)}")
    if len(leaves) == 1:
        return ()
    split = _split(len(leaves))
    if index < split:
        return (*inclusion_proof(leaves[:split], index), root_of(leaves[split:]))
    return (*inclusion_proof(leaves[split:], index - split), root_of(leaves[:split]))


def verify_inclusion(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether `leaf` is entry `index` of the log of `size` entries with this root (section 2.1.3.2)."""
    if not 0 <= index < size:
        return False
    node, last, found = index, size - 1, leaf
    for step in proof:
        if last == 0:
            return False
        if node & 1 or node == last:
            found = node_hash(step, found)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            found = node_hash(found, step)
        node, last = node >> 1, last >> 1
    return last == 0 and found == root


def consistency_proof(leaves: Sequence[bytes], earlier: int) -> tuple[bytes, ...]:
    """What shows that the log of the first `earlier` entries is the beginning of `leaves` (section 2.1.4.1)."""
    if not 0 < earlier <= len(leaves):
        raise IndexError(f"a log of {len(leaves)} has no beginning of {earlier}")
    return _subproof(leaves, earlier, whole=True)


def verify_consistency(earlier: int, size: int, earlier_root: bytes, root: bytes, proof: Sequence[bytes]) -> bool:
    """Whether the log of `size` entries goes on from the one of `earlier` (section 2.1.4.2). Every log goes on from the
    empty one, for which there is no proof to give."""
    if earlier == 0:
        return not proof and earlier_root == EMPTY_ROOT
    if earlier > size or earlier < 0:
        return False
    if earlier == size:
        return not proof and earlier_root == root
    steps = list(proof)
    if earlier & (earlier - 1) == 0:
        steps.insert(0, earlier_root)
    if not steps:
        return False
    node, last = earlier - 1, size - 1
    while node & 1:
        node, last = node >> 1, last >> 1
    before = after = steps[0]
    for step in steps[1:]:
        if last == 0:
            return False
        if node & 1 or node == last:
            before, after = node_hash(step, before), node_hash(step, after)
            while not node & 1 and node:
                node, last = node >> 1, last >> 1
        else:
            after = node_hash(after, step)
        node, last = node >> 1, last >> 1
    return last == 0 and before == earlier_root and after == root


def _subproof(leaves: Sequence[bytes], earlier: int, *, whole: bool) -> tuple[bytes, ...]:
    if earlier == len(leaves):
        return () if whole else (root_of(leaves),)
    split = _split(len(leaves))
    if earlier <= split:
        return (*_subproof(leaves[:split], earlier, whole=whole), root_of(leaves[split:]))
    return (*_subproof(leaves[split:], earlier - split, whole=False), root_of(leaves[:split]))


def _split(size: int) -> int:
    """The largest power of two below `size`."""
    return 1 << (size - 1).bit_length() - 1
