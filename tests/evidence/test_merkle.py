"""The tree against known roots, against the definition written down again, and against every damage to a proof."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.merkle import (
    EMPTY_ROOT,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    root_of,
    verify_consistency,
    verify_inclusion,
)

ENTRIES = [bytes.fromhex(one) for one in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657")] + [
    bytes.fromhex("606162636465666768696a6b6c6d6e6f")
]
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
"""Published with the reference implementation of Certificate Transparency; RFC 9162 kept the hashing of RFC 6962."""
LEAVES = st.lists(st.binary(max_size=3), min_size=1, max_size=40).map(lambda entries: [*map(leaf_hash, entries)])


def by_definition(leaves: list[bytes]) -> bytes:
    """RFC 9162 section 2.1.1, word for word."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return hashlib.sha256(b"\x01" + by_definition(leaves[:split]) + by_definition(leaves[split:])).digest()


def test_known_roots() -> None:
    assert root_of([]) == EMPTY_ROOT
    for size, root in enumerate(ROOTS, 1):
        assert root_of([leaf_hash(entry) for entry in ENTRIES[:size]]).hex() == root


@given(LEAVES)
def test_growing_leaf_by_leaf_is_the_definition(leaves: list[bytes]) -> None:
    assert root_of(leaves) == by_definition(leaves)


@given(LEAVES, st.data())
def test_inclusion(leaves: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(leaves) - 1))
    proof, root, size = inclusion_proof(leaves, index), root_of(leaves), len(leaves)
    assert verify_inclusion(leaves[index], index, size, proof, root)
    assert not verify_inclusion(leaf_hash(b"another entry"), index, size, proof, root)
    assert not verify_inclusion(leaves[index], index, size, [*proof, root], root)
    assert not verify_inclusion(leaves[index], size, size, proof, root)
    if proof:
        assert not verify_inclusion(leaves[index], index, size, proof[:-1], root)
        at = data.draw(st.integers(0, len(proof) - 1))
        assert not verify_inclusion(leaves[index], index, size, [*proof[:at], EMPTY_ROOT, *proof[at + 1 :]], root)


@given(LEAVES, st.data())
def test_consistency(leaves: list[bytes], data: st.DataObject) -> None:
    earlier = data.draw(st.integers(1, len(leaves)))
    proof, size = consistency_proof(leaves, earlier), len(leaves)
    before, root = root_of(leaves[:earlier]), root_of(leaves)
    assert verify_consistency(earlier, size, before, root, proof)
    assert verify_consistency(0, size, EMPTY_ROOT, root, [])
    at = data.draw(st.integers(0, earlier - 1))
    rewritten = [*leaves[:at], leaf_hash(b"another entry"), *leaves[at + 1 :]]
    assert not verify_consistency(earlier, size, before, root_of(rewritten), consistency_proof(rewritten, earlier))
    if earlier > 1:
        shortened = leaves[:at] + leaves[at + 1 : earlier]
        assert not verify_consistency(earlier, len(shortened), before, root_of(shortened), proof)
    if proof:
        assert not verify_consistency(earlier, size, before, root, proof[:-1])
        assert not verify_consistency(earlier, size, before, root, [*proof, root])


@pytest.mark.parametrize("index", [-1, 3])
def test_no_proof_for_what_is_not_there(index: int) -> None:
    leaves = [leaf_hash(b"a")] * 3
    with pytest.raises(IndexError):
        inclusion_proof(leaves, index)
    with pytest.raises(IndexError):
        consistency_proof(leaves, index + 1 if index > 0 else 0)
