"""What differs between the process that made a record and this one: code, libraries, platform.

None of it is in a record's identity, so none of it is a divergence; it is where one comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from harness.exactness.recorded import Recorded
from harness.fingerprint import Source, archive, flags, machine, modules
from harness.identity import Version
from harness.runner import ENGINE


def changes(recorded: Recorded) -> list[str]:
    """One sentence for each thing that is not as it was."""
    session, exact, sealed = recorded.session, recorded.exact, recorded.sealed
    e = session.experiment
    own = {name: v.exact() for name, v in session.maps.versions().items()}
    own |= {"task": Version.of(e.task).exact(), "environment": Version.of(e.environment).exact()}
    old = {**exact["v"], "task": exact["T"], "environment": exact["upsilon"]}
    found = [*_versions(old, own)]
    if session.inference.id != exact["nu"]["iota"]:
        found.append(
            f"ι was {exact['nu']['iota'][:19]}…, is {session.inference.id[:19]}…: other settings"
        )
    now = session.fingerprints
    before = sealed.get("fingerprints", {})
    moved = [name for name in now if name in before and now[name] != before[name]]
    if moved:
        files = changed_files(session.store, sealed.get("source", ""), behind(session, moved))
        where = f": {', '.join(files)}" if files else ""
        found.append(f"the code or libraries behind {', '.join(moved)} changed{where}")
    found += _settings("platform", sealed.get("platform", {}), machine())
    found += _settings("flag", sealed.get("flags", {}), flags())
    return found


def _versions(old: Mapping[str, Any], own: Mapping[str, Any]) -> Iterator[str]:
    for name, version in old.items():
        now = own[name]
        if version["name"] != now["name"]:
            yield f"{name} was {version['name']}, is {now['name']}"
        elif version["settings"] != now["settings"]:
            yield f"{name} is {now['name']} with other settings"


def _settings(what: str, old: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    a, b = flat(old), flat(now)
    if old:
        for key in sorted({*a, *b}):
            if a.get(key) != b.get(key):
                yield f"{what} {key} was {a.get(key)!r}, is {b.get(key)!r}"


def flat(tree: Any, path: str = "") -> dict[str, Any]:
    """Leaves by dotted path."""
    if isinstance(tree, Mapping) and tree:
        parts = (flat(v, f"{path}.{k}" if path else str(k)) for k, v in tree.items())
        return {key: value for part in parts for key, value in part.items()}
    if isinstance(tree, list) and any(isinstance(item, Mapping) for item in tree):
        return flat({str(i): item for i, item in enumerate(tree)}, path)
    return {path: tree}


def behind(session: Any, names: list[str]) -> set[str]:
    """The files of this package behind some maps."""
    e = session.experiment
    things = {
        "task": e.task, "environment": e.environment, "inference": session.inference,
        "engine": ENGINE,
    }  # fmt: skip
    own = [things[name] if name in things else getattr(session.maps, name) for name in names]
    found = {module.removeprefix("harness.") for thing in own for module in modules(thing)}
    return {f"{m.replace('.', '/')}{end}" for m in found for end in (".py", "/__init__.py")}


def changed_files(store: Any, source: str, among: set[str], limit: int = 6) -> list[str]:
    """Of some files, those of the archived source that are not as they run now."""
    if not source or source == archive().id or not store.has("source", source):
        return []
    old, now = store.get(Source, source).arrays, archive().arrays
    names = [n for n in sorted({*old, *now} & among) if not same(old, now, n)]
    more = [f"and {len(names) - limit} more"] if len(names) > limit else []
    return names[:limit] + more


def same(old: Mapping[str, Any], now: Mapping[str, Any], name: str) -> bool:
    return name in old and name in now and np.array_equal(old[name], now[name])
