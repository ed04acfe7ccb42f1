"""What would have been: a recorded round with some of its maps exchanged.

    upstream results and ω as recorded;   the first exchanged map and all after it run again

Words are Hydra's overrides, applied to the configuration under the record's seal: `group=name`
takes a group's file, `key=value` a setting that must exist.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.exactness.changes import flat
from harness.exactness.recorded import Given, Recorded, Unavailable
from harness.exactness.replay import NEED_STATE, STAGES
from harness.finder import Finder
from harness.fingerprint import apply_flags
from harness.identity import Version
from harness.round import Record, State, execute

CONF = Path(__file__).resolve().parent.parent / "conf"
EXCHANGEABLE = ("task", "sampler", "environment", "inference", "rollout", "feedback", "credit",
                "update", "accounting", "memo", "packages")  # fmt: skip
KEPT = {
    "seeds": "a what-if keeps every seed", "model": "a round starts from its recorded state",
    "lineage": "say --branch NAME to append it", "store": "say --store to read another",
    "ledger": "say --uri to read another",
}  # fmt: skip


# ---- words to a configuration


def exchanged(document: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """The configuration with overrides applied. Raises ValueError for one that cannot be."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    if not words:
        raise ValueError(
            "nothing is exchanged; give overrides such as credit=rloo or update.lr=3e-6"
        )
    config = OmegaConf.create(relinked(dict(document)))
    for word in words:
        try:
            override = OverridesParser.create().parse_override(word)
        except HydraException:
            raise ValueError(
                f"{word!r} cannot be read as key=value; quote what has brackets or commas"
            ) from None
        check(word, override)
        try:
            _apply(config, override)
        except HydraException as error:
            group = override.key_or_group
            there = ", ".join(sorted(path.stem for path in (CONF / group).glob("*.yaml")))
            missing = getattr(error, "missing_cfg_file", None) is not None
            text = f"there is no {group} {override.value()!r}; there are {there}"
            raise ValueError(text if missing else _line(error)) from None
        except OmegaConfBaseException:
            raise ValueError(f"{word}: {_unknown(config, override.key_or_group)}") from None
    try:
        OmegaConf.resolve(config)
    except OmegaConfBaseException as error:
        raise ValueError(_line(error)) from None
    container = OmegaConf.to_container(config)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def _line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


def _unknown(config: Any, key: str) -> str:
    """A key that is not there, and those that may have been meant."""
    from omegaconf import OmegaConf

    known = flat(OmegaConf.to_container(config))
    leaf = key.rpartition(".")[2]
    same = [name for name in known if name.rpartition(".")[2] == leaf]
    near = (same + difflib.get_close_matches(key, known, n=2))[:2]
    return f"there is no key {key!r}" + (f"; did you mean {' or '.join(near)}?" if near else "")


def check(word: str, override: Any) -> None:
    """Refuse what is no exchange of a map."""
    if override.is_sweep_override():
        raise ValueError(f"{word} has several values; a what-if takes one")
    head = override.key_or_group.split(".")[0].split("/")[0].split("@")[0]
    if head in KEPT:
        raise ValueError(f"{word}: {KEPT[head]}, so {head} cannot be exchanged")
    if head not in EXCHANGEABLE:
        raise ValueError(f"{word}: {head!r} is no map; exchange {', '.join(EXCHANGEABLE[:-2])}")


def _apply(config: Any, override: Any) -> None:
    from omegaconf import OmegaConf, open_dict

    key, value = override.key_or_group, override.value()
    place = override.package or key.replace("/", ".")
    if (CONF / key).is_dir() and isinstance(value, str):
        node = _composed(override)
        with open_dict(config):
            OmegaConf.update(config, place, node, merge=False, force_add=True)
        return
    # DeepSpeed's keys are its own: any may be given, known to our schema or not
    free = override.is_add() or override.is_force_add() or key.startswith("update.deepspeed.")
    if override.is_delete():
        parent, _, leaf = key.rpartition(".")
        with open_dict(config):
            OmegaConf.select(config, parent).pop(leaf)
        return
    OmegaConf.set_struct(config, True)
    OmegaConf.update(config, key, value, merge=True, force_add=free)


def _composed(override: Any) -> Any:
    """The node of a group's file, as Hydra composes it, with what it refers to left open."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    place = override.package or override.key_or_group.replace("/", ".")
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(CONF), version_base="1.3"):
            whole = compose("config", [override.input_line])
    finally:
        GlobalHydra.instance().clear()
    return OmegaConf.to_container(OmegaConf.select(whole, place), resolve=False)


def relinked(document: dict[str, Any]) -> dict[str, Any]:
    """A resolved configuration whose sampler refers to its task again: both change as one."""
    sampler = document.get("sampler")
    if isinstance(sampler, dict) and sampler.get("task") == document.get("task"):
        document["sampler"] = {**sampler, "task": "${task}"}
    return document


# ---- running it


@dataclass(frozen=True)
class Exchange:
    """A recorded round, what it is exchanged for, and what comes of that."""

    recorded: Recorded
    """The record, in the session of the new configuration."""
    exchanged: tuple[str, ...]
    """Maps that are not those of the record, and what of R's surroundings is not."""
    first: str
    """The first map that runs again."""

    @property
    def kept(self) -> str:
        """Maps whose recorded results are taken."""
        return STAGES[: STAGES.index(self.first)]

    def given(self) -> dict[str, Any]:
        """The results that are taken. ValueError where one is not in the store."""
        try:
            return {name: self.recorded.value(name) for name in self.kept}
        except Unavailable as error:
            raise ValueError(f"{error}; exchange an earlier map") from None

    def start(self) -> State:
        if NEED_STATE & set(STAGES[STAGES.index(self.first) :]):
            return self.recorded.session.promised_at(self.recorded.parent)
        return self.recorded.named_state()

    def run(self) -> Record:
        """The round as it would have been; nothing is appended."""
        apply_flags(self.recorded.sealed.get("flags", {}))
        session, entry = self.recorded.session, self.recorded.entry
        e, start = session.experiment, self.start()
        resolve = session.resident.policy if "R" not in self.kept else self.recorded.stamped
        find = session.finder(start, self.recorded.seeds, f"a what-if of {self.recorded.name}", say)
        return execute(
            start, entry.n, task=e.task, environment=e.environment,
            inference=session.inference, law=Given(self.recorded.seeds), root=e.root,  # type: ignore[arg-type]
            arm=session.arm, maps=session.maps, resolve=resolve,
            stage=Taking(self.given(), self.recorded, find),
        )  # fmt: skip


def say(text: str) -> None:
    print(text, file=sys.stderr)


@dataclass(frozen=True)
class Taking:
    """Takes the results that are given and finds or runs the others; κ is the record's."""

    results: Mapping[str, Any]
    recorded: Recorded
    find: Finder | None

    def __call__(self, name: str, thunk: Callable[[], Any], /) -> Any:
        if name not in self.results:
            return thunk() if self.find is None else self.find(name, thunk)
        if self.find is not None:
            self.find.take(name, self.results[name])
        return self.results[name]

    def readings(self) -> Mapping[str, float]:
        return {**self.recorded.sealed["readings"], **self.recorded.sealed["metered"]}


def exchange(recorded: Recorded) -> Exchange:
    """What of a record's maps the session has exchanged. Raises ValueError where nothing is."""
    found = dict(_exchanged(recorded))
    if not found:
        raise ValueError("nothing is exchanged: every map is the one that the record names")
    first = min(found.values(), key=STAGES.index)
    return Exchange(recorded, tuple(found), first)


def _exchanged(recorded: Recorded) -> Iterator[tuple[str, str]]:
    """What is another, and the map that it exchanges."""
    session, exact = recorded.session, recorded.exact
    e = session.experiment
    if Version.of(e.task).exact() != exact["T"]:
        yield "task", "S"
    for name, version in session.maps.versions().items():
        if version.exact() != exact["v"][name]:
            yield name, name
    if Version.of(e.environment).exact() != exact["upsilon"]:
        yield "environment", "R"
    if session.inference.id != exact["nu"]["iota"]:
        yield "inference", "R"
