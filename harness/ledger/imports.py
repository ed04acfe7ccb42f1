"""Taking a bundle in: everything is checked in a scratch folder before anything of it is kept.

Refused, each with one sentence that names the member: a name that is not one of ours (so no path
leads out), links and devices, more or larger members than allowed, bytes that are not those of the
manifest, a record that is not canonical or does not follow its parent, a page or a value that is
not what its digest says, and a map of a package that the user did not name. Values are read as
safetensors: there is nothing that could be unpickled.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.identity import canonical
from harness.ledger import bundle, files, projection, taking
from harness.ledger.attempt import ENDED
from harness.ledger.bundle import (
    ATTEMPTS,
    CONTENT,
    KINDS,
    MANIFEST,
    PAGE,
    RECORD,
    RETIRED,
    Limits,
)  # fmt: skip
from harness.ledger.entry import MAIN, branch_name
from harness.ledger.ledger import Ledger, _lineage_name
from harness.ledger.lineage import Lineage
from harness.ledger.record import Broken, Document
from harness.ledger.taking import Checked
from harness.store import Corrupt, Store, TokenizerFiles

Identify = Callable[[Mapping[str, bytes]], str]


def admit(
    ledger: Ledger, store: Store, file: Path, name: str, packages: tuple[str, ...], limits: Limits,
    identify: Identify,
) -> tuple[Lineage, int]:  # fmt: skip
    """Verify a bundle and append what of it is not here yet; returns how many records that were.

    identify: a tokenizer's identifier, of its files by name.
    """
    with tempfile.TemporaryDirectory(prefix="harness-import-") as scratch:
        checked = check(file, Path(scratch), packages, limits, identify)
        checked.name = _lineage_name(name or checked.name)
        found = ledger.find(checked.name)
        present = {} if found is None else taking.present(found, checked)
        for kind, identifier, path in checked.values:
            store.admit(kind, identifier, path)
        for kind, identifier, reason in checked.retired:
            if not store.has(kind, identifier):
                store.retire(kind, identifier, reason)
        if found is not None:
            return found, taking.append(found, checked, present)
        root = store.root if "://" in store.root else str(Path(store.root).resolve())
        return taking.begin(ledger, checked, root)


def check(
    file: Path, scratch: Path, packages: tuple[str, ...], limits: Limits, identify: Identify
) -> Checked:
    """Unpack a bundle into a scratch folder, and hold every member to what it should be."""
    checked, places = Checked(""), dict[str, Path]()
    for name, path in _unpacked(file, scratch, limits, checked):
        places[name] = path
        if RECORD.fullmatch(name):
            with _naming(name):
                document = Document.parse(path.read_bytes())
                _allowed(document, packages)
            if name != f"records/{len(checked.documents)}/record.json":
                raise ValueError(f"{name} is not in its place in the bundle; export it again")
            checked.documents.append(document)
        elif page := PAGE.fullmatch(name):
            checked.pages.setdefault(int(page[1]), {})[page[2]] = path
        elif name == ATTEMPTS:
            with _naming(name):
                checked.attempts = _attempts(path.read_bytes())
        elif note := RETIRED.fullmatch(name):
            with _naming(name):
                if note[1] not in KINDS or path.stat().st_size > 10_000:
                    raise ValueError("it is no note of why a value was dropped")
                checked.retired.append((note[1], "sha256:" + note[2], path.read_text("utf-8")))
    _chain(checked)
    for i, document in enumerate(checked.documents):
        sealed, there = document.sealed.get("files", {}), checked.pages.get(i, {})
        dropped = {name for name in sealed if name not in there and name + bundle.GONE in there}
        for name in sorted({*sealed, *there} - dropped - {name + bundle.GONE for name in dropped}):
            digest = None
            if name in there:
                with there[name].open("rb") as data:
                    digest = bundle.measured(data)[1]
            if digest != sealed.get(name):
                raise ValueError(f"records/{i}/pages/{name} is not what its record seals")
    _values(checked, {n: p for n, p in places.items() if CONTENT.fullmatch(n)}, identify)
    return checked


def _unpacked(
    file: Path, scratch: Path, limits: Limits, checked: Checked
) -> Iterator[tuple[str, Path]]:
    name, rows, total = MANIFEST, None, 0
    try:
        with tarfile.open(file, "r:") as tar:
            for i, info in enumerate(tar):
                _plain(info, i, limits)
                total += info.size
                if total > limits.total:
                    raise ValueError(
                        f"{info.name} exceeds {limits.total} bytes in all; raise the limit"
                    )
                path, data = scratch / str(i), tar.extractfile(info)
                assert data is not None
                with path.open("wb") as out:
                    while block := data.read(1 << 20):
                        out.write(block)
                with path.open("rb") as again:
                    size, digest = bundle.measured(again)
                if rows is None:
                    rows = _manifest(info.name, path, limits, checked)
                elif not rows or rows[0][0] != info.name:
                    raise ValueError(
                        f"{info.name} is not where the manifest has it; it was altered"
                    )
                else:
                    if rows.pop(0)[1:] != [size, digest]:
                        raise ValueError(
                            f"{info.name} is not the bytes of the manifest; it was altered"
                        )
                    yield info.name, path
                name = rows[0][0] if rows else "its end"
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(f"{file} cannot be read at {name}: {error}") from error
    if rows is None or rows:
        raise ValueError(f"{file} is cut short: it lacks {name}")


def _plain(info: tarfile.TarInfo, i: int, limits: Limits) -> None:
    """A regular file under one of our names, of a size that is allowed."""
    shown = info.name[:200]
    page = PAGE.fullmatch(info.name)
    ours = (
        info.name in (MANIFEST, ATTEMPTS) or RECORD.fullmatch(info.name)
        or CONTENT.fullmatch(info.name) or RETIRED.fullmatch(info.name) or page
    )  # fmt: skip
    parts = info.name.split("/")
    if not ours or {"", ".", ".."} & set(parts) or "\\" in info.name or "\0" in info.name:
        raise ValueError(f"{shown!r} is no name of a bundle's member; it is refused")
    if page and page[2] == files.RECORD:
        raise ValueError(f"{shown!r} would stand in the place of a record; it is refused")
    if not info.isreg() or info.sparse is not None:
        raise ValueError(f"{shown!r} is not a plain file; links and devices are refused")
    if info.size > limits.member:
        raise ValueError(
            f"{shown!r} has {info.size} bytes, {limits.member} are allowed; raise the limit"
        )
    if i > limits.members:
        raise ValueError(f"{shown!r} is one member more than {limits.members}; raise the limit")


def _manifest(name: str, path: Path, limits: Limits, checked: Checked) -> list[list[Any]]:
    try:
        data = path.read_bytes()
        head = json.loads(data)
        good = name == MANIFEST and head["schema"] == bundle.SCHEMA and canonical(head) == data
        rows: list[list[Any]] = head["members"]
        names = [str(row[0]) for row in rows]
        checked.name = str(head["lineage"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise ValueError(f"{name} is no manifest of a bundle ({error}); export it again") from error
    if not good or len(set(names)) != len(names):
        raise ValueError(f"{name} is no manifest of {bundle.SCHEMA}; export the lineage again")
    return rows


def _attempts(data: bytes) -> list[dict[str, Any]]:
    """Attempts of another ledger: what they cost enters totals, so it has to be a cost."""
    rows: list[dict[str, Any]] = json.loads(data)
    for row in rows:
        branch_name(row["branch"])
        plain = (
            re.fullmatch(r"[0-9a-f]{32}", row["origin"]) and row["state"] in ENDED
            and re.fullmatch(r"\w{0,20}", row["stage"]) and type(row["n"]) is int and row["n"] >= 0
            and set(row) == {"origin", "n", "branch", "stage", "state", "cost"}
            and all(re.fullmatch(r"[\w./-]{1,100}", name) for name in row["cost"])
            and all(math.isfinite(v) and v >= 0 for v in row["cost"].values())
        )  # fmt: skip
        if not plain:
            raise ValueError(f"{str(row)[:200]} is no attempt")
    if len({row["origin"] for row in rows}) != len(rows) or canonical(rows) != data:
        raise ValueError("it is no list of attempts as `export` writes it")
    return rows


def _chain(checked: Checked) -> None:
    """Every record follows one before it; a branch leaves another where it has its parent."""
    by_seal: dict[str, Document] = {}
    taken: set[tuple[str | None, str]] = set()
    branches: set[str] = set()
    for i, document in enumerate(checked.documents):
        with _naming(f"records/{i}/record.json"):
            branch_name(document.branch)
            genesis = "genesis" in document.exact
            parent = by_seal.get(document.parent_seal or "")
            first = genesis and i == 0 and document.parent is None and document.parent_seal is None
            later = (
                not genesis and parent is not None and parent.identity == document.parent
                and document.n == parent.n + 1
            )  # fmt: skip
            foreign = parent is not None and document.branch != parent.branch
            twice = (document.parent_seal, document.branch) in taken or (
                foreign and document.branch in branches
            )
            if not ((first and document.branch == MAIN) or later) or twice:
                raise ValueError("it does not follow a record before it")
            projection.params(document), projection.metrics(document), document.resulting
        branches.add(document.branch)
        taken.add((document.parent_seal, document.branch))
        by_seal[document.seal] = document
    if not checked.documents:
        raise ValueError("the bundle holds no record; export the lineage again")


def _values(checked: Checked, places: Mapping[str, Path], identify: Identify) -> None:
    """Each value has its identifier; of a model's further files, the one that its meta names."""
    for name, path in places.items():
        found = CONTENT.fullmatch(name)
        assert found is not None
        kind, identifier = found[1], "sha256:" + found[2]
        with _naming(name):
            if kind not in KINDS:
                raise ValueError(f"{kind!r} is no kind of value")
            head = bundle.header(path)
            if set(head) != {"meta", "files"}:
                raise ValueError("its metadata is not that of a stored value")
            value = Store.read(kind, path)
            if value.id != identifier:
                raise ValueError(f"it holds {value.id}")
            if head["files"] is not None:
                tokenizer = str(head["files"]).removeprefix("sha256:")
                member = places.get(f"content/tokenizer/{tokenizer}.safetensors")
                if kind != "model" or member is None:
                    raise ValueError("the files that it names are not in the bundle")
                _tokenizer(head["meta"], member, identify)
        checked.values.append((kind, identifier, path))


def _tokenizer(meta: Mapping[str, Any], path: Path, identify: Identify) -> None:
    """The files that come with a model are those of the tokenizer in its identity."""
    if meta.get("tokenizer") != identify(files_of(path)):
        raise ValueError("its tokenizer's files are another tokenizer's")


def files_of(path: Path) -> dict[str, bytes]:
    value = Store.read("tokenizer", path)
    assert isinstance(value, TokenizerFiles)
    return value.files


def _allowed(document: Document, packages: tuple[str, ...]) -> None:
    """Every map that a configuration names is of harness or of a named package."""
    roots = {"harness", *packages}
    for target in _named(document.sealed):
        if target.partition(".")[0] not in roots:
            raise ValueError(
                f"it names {target!r}, which is not of harness; give --package if you trust it"
            )


def _named(value: Any, key: str = "") -> Iterator[str]:
    """What a configuration would import: targets, packages, and paths of functions."""
    if isinstance(value, str):
        if key == "_target_" or key == "packages" or (key == "path" and ":" in value):
            yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _named(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _named(item, key)


@contextlib.contextmanager
def _naming(member: str) -> Iterator[None]:
    """Whatever is wrong within is said of a member, in one sentence."""
    try:
        yield
    except (Broken, Corrupt, ValueError, KeyError, TypeError, AttributeError, OverflowError,
            RecursionError) as error:  # fmt: skip
        raise ValueError(f"{member} is refused: {' '.join(str(error).split())}") from error
