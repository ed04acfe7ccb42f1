"""Canonical bytes, content identifiers, seeds and the exact versions of maps.

An identifier is `sha256:` and 64 hex digits. Every hash is separated by domain,

    id(kind, meta, tensors) = H("harness/" kind "/v1" 0x00 canonical({meta, tensors: rows})),
    rows = [name, dtype, shape, root] of each tensor, sorted by name,

where `canonical` is the JSON of RFC 8785 and `root` is BLAKE3, itself a tree of hashes, of a
tensor's little-endian bytes: equal for any file layout, and hashed on all cores.
What has no single spelling raises, and the message names its path.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import blake3
import rfc8785

PARALLEL_FROM = 1 << 20
"""Bytes from which hashing on several threads is worth its start."""

_INT_LIMIT = 2**53 - 1


def canonical(value: Any, *, path: str = "$") -> bytes:
    """The RFC 8785 bytes of a JSON value.

    Mappings with string keys, sequences, strings, booleans, None, integers up to 2^53-1 and finite
    floats have a spelling (tuples spell as lists). Raises ValueError for anything else.
    What is read back with `json.loads` has the same bytes.
    """
    try:
        return _spell(value).encode()
    except (_Uncommon, UnicodeEncodeError):
        return rfc8785.dumps(plain(value, path=path))


_quoted = json.encoder.encode_basestring


class _Uncommon(Exception):
    """A value that has to be made plain first, or has no spelling."""


def _spell(value: Any) -> str:
    """What `rfc8785` gives for a value of JSON's own types, several times faster."""
    kind = type(value)
    if kind is str:
        return _quoted(value)
    if kind is dict:
        keys = sorted(value, key=None if _plainly(value) else _utf16)
        return "{" + ",".join([f"{_quoted(key)}:{_spell(value[key])}" for key in keys]) + "}"
    if kind is list or kind is tuple:
        return "[" + ",".join([_spell(item) for item in value]) + "]"
    if kind is float:
        return _number(value)
    if kind is int and -_INT_LIMIT <= value <= _INT_LIMIT:
        return str(value)
    if value is None or kind is bool:
        return "null" if value is None else "true" if value else "false"
    raise _Uncommon


def _plainly(keys: Iterable[Any]) -> bool:
    """Whether the order of code points is that of UTF-16 units."""
    try:
        return "".join(keys).isascii()
    except TypeError:
        raise _Uncommon from None


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def _number(value: float) -> str:
    """The shortest digits that read back, as ECMAScript places their point and exponent."""
    text = repr(value)
    if "e" not in text and "n" not in text:  # neither an exponent, nor nan or inf
        return (text[:-2] if text.endswith(".0") else text) if value else "0"
    if not math.isfinite(value):
        raise _Uncommon
    return rfc8785.dumps(value).decode()


def plain(value: Any, *, path: str = "$") -> Any:
    """The same value as plain dicts, lists and scalars; ValueError names the path of what has no
    spelling."""
    if isinstance(value, enum.Enum):
        return plain(value.value, path=path)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        return _integer(value, path)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{path}: {value} cannot enter a record; give a finite number")
        return float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(
                    f"{path}: the key {key!r} is {type(key).__name__}; keys are strings"
                )
            _text(key, path)
        return {key: plain(item, path=f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, path=f"{path}[{i}]") for i, item in enumerate(value)]
    raise ValueError(
        f"{path}: a {type(value).__name__} has no canonical spelling; give JSON values"
    )


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"{path}: {value!r} has a lone surrogate and no canonical spelling; give Unicode text"
        ) from None
    return value


def _integer(value: int, path: str) -> int | float:
    """Itself; above 2^53-1 only where it is how a float is spelt, as reading one back gives it."""
    if abs(value) <= _INT_LIMIT:
        return int(value)
    if abs(value) >= 10**21 or rfc8785.dumps(float(value)) != str(value).encode():
        raise ValueError(f"{path}: {value} exceeds 2^53-1; spell it as a string")
    return float(value)


def evidence(value: float) -> float | str:
    """A float that was measured: NaN and infinities as strings, so that a record can hold them."""
    value = float(value)
    return value if math.isfinite(value) else repr(value)


def digest(domain: str, *parts: bytes) -> str:
    """`sha256:…` of the parts, which must be unambiguous in their domain."""
    hasher = hashlib.sha256(f"harness/{domain}/v1\0".encode())
    for part in parts:
        hasher.update(part)
    return "sha256:" + hasher.hexdigest()


TensorBytes = tuple[str, str, tuple[int, ...], memoryview]
"""Name, dtype (safetensors' names: F32, BF16, I64, BOOL, …), shape, contiguous little-endian bytes.
"""


def content_id(kind: str, meta: Any, tensors: Iterable[TensorBytes] = ()) -> str:
    """The identifier of a value made of canonical JSON and named tensors."""
    rows = sorted(tensors, key=lambda row: row[0])
    return id_of_entries(kind, meta, [entry(row) for row in rows])


def entry(row: TensorBytes) -> list[Any]:
    """What an identifier says of one tensor: for tensors that are never whole at the same time."""
    name, dtype, shape, view = row
    threads = blake3.blake3.AUTO if len(view) >= PARALLEL_FROM else 1
    return [name, dtype, list(shape), blake3.blake3(view, max_threads=threads).hexdigest()]


def id_of_entries(kind: str, meta: Any, entries: list[list[Any]]) -> str:
    """The identifier of a value from the entries of its tensors, which are sorted by name."""
    return digest(kind, canonical({"meta": meta, "tensors": entries}))


def name_of(thing: Any) -> str:
    """`family.module` of a map of this project, or the full dotted path of somebody else's."""
    cls = thing if isinstance(thing, type) else type(thing)
    if cls.__module__.startswith("harness."):
        return cls.__module__.removeprefix("harness.")
    return f"{cls.__module__}.{cls.__qualname__}"


def _counts(field: dataclasses.Field, value: Any) -> bool:
    """Whether a field is part of the settings."""
    how = field.metadata.get("identity", True)
    return bool(value != field.default) if how == "unless default" else bool(how)


def settings(thing: Any, *, path: str = "$") -> Any:
    """The canonical document of a frozen dataclass: its name, version and every field that counts.

    A field declared with `metadata={"identity": False}` (a handle, a cache) is left out; one with
    `{"identity": "unless default"}`, where it is its default: so a map may gain a setting, and what
    it did before stays the same version. Contents count by their identifier. A callable cannot be
    spelt: give its import path as a string.
    """
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        fields = {
            f.name: settings(getattr(thing, f.name), path=f"{path}.{f.name}")
            for f in dataclasses.fields(thing)
            if _counts(f, getattr(thing, f.name))
        }
        version = getattr(type(thing), "version", None)
        named = f"{name_of(thing)}@{version}" if version is not None else name_of(thing)
        return {"map": named, "settings": fields}
    if isinstance(thing, Mapping):
        return {str(k): settings(v, path=f"{path}.{k}") for k, v in thing.items()}
    if isinstance(thing, list | tuple):
        return [settings(v, path=f"{path}[{i}]") for i, v in enumerate(thing)]
    if isinstance(getattr(thing, "id", None), str):
        return thing.id
    return plain(thing, path=path)


@dataclasses.dataclass(frozen=True)
class Version:
    """An exact implementation version: what a record says of a map."""

    name: str
    """`credit.group@1`."""
    settings: str
    """The digest of its settings."""

    @classmethod
    def of(cls, thing: Any) -> Version:
        document = settings(thing)
        return cls(document["map"], digest("settings", canonical(document)))

    def exact(self) -> dict[str, str]:
        return {"name": self.name, "settings": self.settings}


@dataclasses.dataclass(frozen=True, slots=True)
class Seed:
    """A point of a seed space: 128 bits as 32 hex digits."""

    hex: str

    def fold(self, *path: str | int) -> Seed:
        """The seed at a path below this one: order-free, and independent of every other path."""
        body = bytes.fromhex(self.hex) + canonical(list(path))
        return Seed(hashlib.sha256(b"harness/seed/v1\0" + body).hexdigest()[:32])

    @property
    def key(self) -> int:
        """64 bits of it: a Philox key."""
        return int(self.hex[:16], 16)
