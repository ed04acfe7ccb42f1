import hashlib
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

import numpy as np
import pytest
import rfc8785
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from harness import identity
from harness.identity import (
    PARALLEL_FROM,
    Version,
    canonical,
    content_id,
    digest,
    evidence,
    settings,
)

# RFC 8785, appendix B: the bits of a double and its one spelling
NUMBERS = {
    "0000000000000000": "0", "8000000000000000": "0", "0000000000000001": "5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308", "4340000000000000": "9007199254740992",
    "44b52d02c7e14af5": "9.999999999999997e+22", "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23", "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555555": "333333333.3333333", "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333",
}  # fmt: skip


@pytest.mark.parametrize(("bits", "spelt"), NUMBERS.items())
def test_numbers_are_spelt_as_in_rfc_8785(bits, spelt):
    assert canonical(struct.unpack(">d", bytes.fromhex(bits))[0]).decode() == spelt


def test_the_example_of_rfc_8785():
    # section 3.2.2 and 3.2.3: the input, and its canonical form
    given = json.loads(
        r"""{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
             "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
             "literals": [null, true, false]}"""
    )
    assert canonical(given).decode() == (
        '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    )


def test_keys_are_sorted_by_utf_16_units():
    # section 3.2.3: 1F600 is a surrogate pair and sorts below FB33
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    spelt = json.loads(canonical(dict.fromkeys(keys)))
    assert list(spelt) == ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]


class Colour(Enum):
    RED = "red"


def test_plain_python_has_one_spelling():
    assert canonical((1, [2], {"b": 1, "a": Colour.RED})) == b'[1,[2],{"a":"red","b":1}]'
    assert canonical([True, 1, 1.0, np.float64(0.5)]) == b"[true,1,1,0.5]"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1, {"b": math.nan}]}, r"^\$\.a\[1\]\.b: nan cannot enter a record"),
        ({"a": math.inf}, r"^\$\.a: inf cannot enter a record"),
        ([2**53 + 1], r"^\$\[0\]: 9007199254740993 exceeds 2\^53-1; spell it as a string"),
        ([2**60], r"^\$\[0\]: 1152921504606846976 exceeds 2\^53-1"),
        ([-(10**400)], r"^\$\[0\]: -10+ exceeds 2\^53-1"),
        ({"a": {1: 2}}, r"^\$\.a: the key 1 is int; keys are strings"),
        ({"a": {1, 2}}, r"^\$\.a: a set has no canonical spelling"),
        ({"a": b"x"}, r"^\$\.a: a bytes has no canonical spelling"),
        ({"a": [np.int64(3)]}, r"^\$\.a\[0\]: a int64 has no canonical spelling"),
        ({"a": "\ud800"}, r"^\$\.a: '\\ud800' has a lone surrogate"),
        ({"\udfff": 1}, r"^\$: '\\udfff' has a lone surrogate"),
    ],
)
def test_what_has_no_single_spelling_is_refused_with_its_path(value, message):
    with pytest.raises(ValueError, match=message):
        canonical(value)


def test_the_largest_exact_integers_are_spelt():
    assert canonical([2**53 - 1, -(2**53) + 1]) == b"[9007199254740991,-9007199254740991]"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(json_values)
def test_canonical_bytes_read_back_to_the_same_value(value):
    spelt = canonical(value)
    back = json.loads(spelt)
    assert canonical(back) == spelt
    # between 2^53 and 10^21 a float reads back as the integer that its digits say
    assert json.loads(spelt, parse_int=float) == value
    assert rfc8785.dumps(value) == spelt


@given(
    st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-400, 400).map(lambda e: 10.0 ** min(e, 308))
)
def test_floats_are_spelt_as_the_reference_spells_them(value):
    assert canonical(value) == rfc8785.dumps(value)


@pytest.mark.parametrize("value", [2.0**53, 2.0**60, 3.2e18, -1e20, 1e21, 1.7e308])
def test_a_large_float_that_is_read_back_keeps_its_spelling(value):
    # between 2^53 and 10^21 it is spelt without an exponent, and reads back as an integer
    assert canonical(json.loads(canonical(value))) == canonical(value)


def test_evidence_spells_what_a_record_cannot_hold():
    assert [evidence(x) for x in (1, math.nan, math.inf, -math.inf)] == [1.0, "nan", "inf", "-inf"]


def test_hashes_are_separated_by_domain():
    assert digest("a", b"bc") != digest("ab", b"c")
    assert digest("a", b"b") == "sha256:" + hashlib.sha256(b"harness/a/v1\0b").hexdigest()
    kinds = {content_id(kind, {}) for kind in ("model", "optimizer", "credit")}
    assert len(kinds) == 3


def test_the_root_is_blake3():
    # the published vector of the empty input
    empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert identity.entry(("w", "U8", (0,), memoryview(b""))) == ["w", "U8", [0], empty]


def tensor(name: str, size: int) -> tuple[str, str, tuple[int, ...], memoryview]:
    data = np.arange(size, dtype=np.uint32).view(np.uint8)[:size] if size else np.zeros(0, "u1")
    return name, "U8", (size,), memoryview(np.ascontiguousarray(data))


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, PARALLEL_FROM, 3 * PARALLEL_FROM + 5])
def test_an_identifier_is_its_definition(size):
    name, dtype, shape, view = tensor("w", size)
    entry = ["w", "U8", [size], blake3(view).hexdigest()]
    body = canonical({"meta": {"a": 1}, "tensors": [entry]})
    expected = "sha256:" + hashlib.sha256(b"harness/model/v1\0" + body).hexdigest()
    assert content_id("model", {"a": 1}, [(name, dtype, shape, view)]) == expected


def test_hashing_in_parallel_gives_the_same(monkeypatch):
    sizes = {"a": 3 * PARALLEL_FROM + 1, "b": 0, "c": 2 * PARALLEL_FROM, "d": 17}
    rows = [tensor(name, size) for name, size in sizes.items()]
    parallel = content_id("model", {}, rows)
    monkeypatch.setattr(identity, "PARALLEL_FROM", 10**12)
    assert content_id("model", {}, rows) == parallel


def test_every_part_of_a_tensor_counts_and_their_order_does_not():
    a, b = tensor("a", 8), tensor("b", 9)
    base = content_id("model", {}, [a, b])
    assert content_id("model", {}, [b, a]) == base
    flipped = bytearray(a[3])
    flipped[-1] ^= 1
    others = [
        [("A", *a[1:]), b],
        [(a[0], "I8", *a[2:]), b],
        [(*a[:2], (2, 4), a[3]), b],
        [(*a[:3], memoryview(flipped)), b],
        [a],
    ]
    found = {content_id("model", {}, rows) for rows in others} | {content_id("x", {}, [a, b])}
    assert len(found | {base}) == 7


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5


@dataclass(frozen=True)
class Outer:
    version: ClassVar[str] = "7"
    inner: Inner = Inner()
    names: tuple[str, ...] = ("a", "b")
    table: dict[str, Any] = field(default_factory=dict)
    handle: Any = field(default=None, metadata={"identity": False})


def test_settings_spell_every_field_that_counts():
    found = settings(Outer(handle=object()))
    assert found["map"].endswith(".Outer@7")
    assert sorted(found["settings"]) == ["inner", "names", "table"]
    assert found["settings"]["inner"]["settings"] == {"rate": 0.5}
    assert "@" not in found["settings"]["inner"]["map"]
    assert found["settings"]["names"] == ["a", "b"]


def test_a_handle_changes_no_version_and_a_setting_does():
    base = Version.of(Outer())
    assert Version.of(Outer(handle=print)) == base
    assert Version.of(Outer(inner=Inner(0.25))).settings != base.settings
    assert Version.of(Outer(inner=Inner(0.25))).name == base.name


def test_contents_count_by_their_identifier():
    @dataclass(frozen=True)
    class Content:
        id: str = "sha256:1"

    class Opaque:
        id = "sha256:2"

    assert settings(Outer(table={"judge": Opaque()}))["settings"]["table"] == {"judge": "sha256:2"}


@pytest.mark.parametrize("value", [print, object(), {1.5, 2}, math.nan])
def test_a_setting_without_a_spelling_is_refused_with_its_path(value):
    with pytest.raises(ValueError, match=r"^\$\.table\.f\[0\]: "):
        Version.of(Outer(table={"f": [value]}))


def test_a_map_of_this_project_is_named_by_family_and_module():
    from harness.credit.rloo import RLOO

    assert Version.of(RLOO()).name == f"credit.rloo@{RLOO.version}"
    assert identity.name_of(Outer).endswith("test_identity.Outer")


def test_a_version_is_exact_about_its_settings():
    version = Version.of(Outer())
    expected = digest("settings", canonical(settings(Outer())))
    assert version.exact() == {"name": version.name, "settings": expected}


def test_text_and_numbers_do_not_share_a_spelling():
    spelt: list[Callable[[], bytes]] = [lambda v=v: canonical(v) for v in ("1", 1, "true", True)]
    assert len({s() for s in spelt}) == 4
