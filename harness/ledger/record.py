"""The document of a record, and its two digests.

    identity = H("record", {schema, parent, exact})        parent: the parent's identity
    seal     = H("seal", {identity, parent_seal, sealed})

`exact` is the exact part of r_n: equal whenever the same round is run again. `sealed` is everything
else that must not be altered: metered readings, platform, fingerprints, totals, digests of pages.
The bytes of `record.json` are the canonical JSON of the five parts; neither digest stands in it.
The genesis record has `exact = {"genesis": …}`, no parent, and the index -1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from harness import identity
from harness.identity import canonical, digest

SCHEMA = "harness/record/v1"
MAIN = "main"
PARTS = ("exact", "parent", "parent_seal", "schema", "sealed")


class Broken(Exception):
    """Something in the ledger is not what its digests say."""


@dataclass(frozen=True)
class Document:
    """A record as it is kept."""

    parent: str | None
    """The parent's identity."""
    parent_seal: str | None
    exact: Mapping[str, Any]
    sealed: Mapping[str, Any]
    schema: str = SCHEMA

    @cached_property
    def identity(self) -> str:
        parent, schema = canonical(self.parent), self._schema
        return digest(
            "record", b'{"exact":', self._exact, b',"parent":', parent, b',"schema":', schema, b"}"
        )  # fmt: skip

    @cached_property
    def seal(self) -> str:
        own, parent = canonical(self.identity), canonical(self.parent_seal)
        return digest(
            "seal", b'{"identity":', own, b',"parent_seal":', parent, b',"sealed":',
            self._sealed, b"}",
        )  # fmt: skip

    @cached_property
    def encoded(self) -> bytes:
        named = (self._exact, canonical(self.parent), canonical(self.parent_seal), self._schema)
        rows = zip(PARTS, (*named, self._sealed), strict=True)
        return b"{" + b",".join(b'"%s":%s' % (k.encode(), v) for k, v in rows) + b"}"

    # canonical JSON is spelt once a part: its keys are sorted, so a whole is its parts in order

    @cached_property
    def _exact(self) -> bytes:
        return canonical(self.exact)

    @cached_property
    def _sealed(self) -> bytes:
        return canonical(self.sealed)

    @property
    def _schema(self) -> bytes:
        return canonical(self.schema)

    @property
    def n(self) -> int:
        return int(self.exact.get("n", -1))

    @property
    def branch(self) -> str:
        return str(self.sealed.get("branch", MAIN))

    @property
    def resulting(self) -> Mapping[str, str]:
        """The identifiers of the state after this record."""
        genesis = self.exact.get("genesis")
        state: Mapping[str, str] = self.exact["resulting"] if genesis is None else genesis["state"]
        return state

    @classmethod
    def parse(cls, data: bytes) -> Document:
        """Read `record.json`. Raises Broken where it is not the canonical bytes of a record."""
        try:
            parts = json.loads(data)
            document = cls(**parts)
            same = set(parts) == set(PARTS) and document.encoded == data
        except (ValueError, TypeError) as error:
            raise Broken(f"record.json is no record: {error}") from error
        if not same:
            raise Broken("record.json is not in canonical form, so it was rewritten")
        return document


def spelt(value: Any) -> Any:
    """Sealed evidence in canonical spelling: measured NaN and infinity become strings."""
    if isinstance(value, float):
        return identity.evidence(value)
    if isinstance(value, Mapping):
        return {str(key): spelt(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [spelt(item) for item in value]
    return value


def genesis(
    *, state: Mapping[str, str], law: Any, root: str, arm: str, feedback: Any, credit: Any,
    costs: Mapping[str, str], **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """The exact part of a genesis record.

    state: identifiers of M_0 and s_0; law: the seed law; feedback, credit: descriptions of their
    spaces; costs: every declared dimension with its unit; more: further facts that fix a lineage.
    """
    seeds = {"law": identity.settings(law), "root": root, "arm": arm}
    spaces = {"feedback": feedback, "credit": credit}
    return {
        "genesis": {
            "state": dict(state),
            "seeds": seeds,
            "spaces": spaces,
            "costs": dict(costs),
            **more,
        }
    }


def totals(
    before: Mapping[str, Any], exact: Mapping[str, Any], sealed: Mapping[str, Any]
) -> dict[str, Any]:
    """Costs along a chain: exact integers as strings, metered readings as floats, summed; of
    `memory/` the most."""
    after = dict(before)
    for name, text in exact.get("c", {}).items():
        after[name] = str(int(after.get(name, "0")) + int(text))
    for name, value in sealed.get("metered", {}).items():
        after[name] = joined(name, float(after.get(name, 0.0)), float(value))
    return after


def avoided(parent: Mapping[str, Any], sealed: Mapping[str, Any]) -> dict[str, float]:
    """Costs along a chain that were found in the memo and not spent, less what was spent later."""
    memo = sealed.get("memo") or {}
    after = {name: float(value) for name, value in parent.get("avoided", {}).items()}
    for note in memo.get("maps", {}).values():
        for name, value in note.get("avoided", {}).items():
            after[name] = after.get(name, 0.0) + float(value)
    for name, value in memo.get("repaid", {}).items():
        after[name] = max(after.get(name, 0.0) - float(value), 0.0)
    return after


def joined(name: str, one: float, other: float) -> float:
    """A reading of two pieces of work together: memory is held, everything else is spent."""
    return max(one, other) if name.startswith("memory/") else one + other


def following(
    parent: Document, branch: str, exact: Mapping[str, Any], sealed: Mapping[str, Any],
    files: Mapping[str, str],
) -> Document:  # fmt: skip
    """The document of the record after `parent`; files: digests of its further artifacts."""
    if exact["n"] != parent.n + 1:
        raise ValueError(f"round {exact['n']} cannot follow round {parent.n} in the ledger")
    own = spelt(sealed)
    before = parent.sealed.get("totals", {})
    own |= {"branch": branch, "totals": totals(before, exact, own), "files": dict(files)}
    if saved := avoided(parent.sealed, own):
        own["avoided"] = saved
    return Document(parent.identity, parent.seal, exact, own)
