"""From a composed configuration to the objects of an experiment, with errors that people can read.

Below this module nothing sees Hydra or OmegaConf. A configuration is resolved once; every
`_target_` must lie in this package or in one that `packages` names; every field is held to its
annotation.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.agreement import check_agreement
from harness.identity import canonical, digest, settings
from harness.memo import Off
from harness.ranks import count
from harness.round import Maps

GROUPS = ("task", "sampler", "environment", "model", "inference", "rollout", "feedback", "credit",
          "update", "accounting")  # fmt: skip
LINEAGE = ("name", "parent", "branch")
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "seeds": ("root", "law"), "lineage": LINEAGE, "ledger": ("_target_", "uri", "experiment"),
    "store": ("_target_", "root", "snapshot_every"),
}  # fmt: skip
"""What the harness itself reads, and its keys; the groups have those of their maps."""
PLAIN = ("rounds", "ranks", "packages", "budget", "memo")


@dataclass(frozen=True)
class Experiment:
    """Everything that a lineage is run with."""

    name: str
    """Of the round file, for people."""
    maps: Maps
    task: Any
    environment: Any
    model: Any
    inference: Any
    law: Any
    root: str
    rounds: int
    ranks: int
    lineage: str
    branch: str
    parent: str | None
    budget: Mapping[str, float]
    ledger: Mapping[str, Any]
    store: Mapping[str, Any]
    memo: Off
    document: Mapping[str, Any]
    """The resolved configuration."""
    arm: str = field(default="")
    """The digest of everything exact but the root: an arm of a sweep."""


def build(container: Mapping[str, Any], name: str) -> Experiment:
    """The experiment of a resolved configuration. Raises ValueError with one sentence."""
    check_shape(container)
    rounds = positive(container, "rounds")
    ranks = count(None if container["ranks"] is None else positive(container, "ranks"))
    budget = budget_of(container["budget"])
    root = word(container["seeds"]["root"], "seeds.root")
    line = {k: word(container["lineage"][k], f"lineage.{k}", k != "branch") for k in LINEAGE}
    allowed = ("harness.", *(f"{p}." for p in container["packages"]))
    made = {group: make(container[group], allowed, group) for group in GROUPS}
    law = make(container["seeds"]["law"], allowed, "seeds.law")
    memo = make(container.get("memo", {"_target_": "harness.memo.Off"}), allowed, "memo")
    if not isinstance(memo, Off):
        raise ValueError(f"memo is {container['memo']!r}; choose memo=on or memo=off")
    check_attempts(made["credit"], made["rollout"])
    check_sampling(made["inference"])
    check_budget(budget, made["accounting"])
    check_parts(made)
    check_agreement(made["model"], made["rollout"], made["credit"], made["update"].objective)
    exact = {group: settings(thing) for group, thing in made.items()} | {"law": settings(law)}
    arm = digest("arm", canonical(exact)).removeprefix("sha256:")[:16]
    for group in ("inference", "update"):
        made[group] = spread(made[group], ranks, group)
    maps = Maps(
        made["sampler"], made["rollout"], made["feedback"], made["credit"], made["update"],
        made["accounting"],
    )  # fmt: skip
    lineage = line["name"]
    if lineage is None:
        own = digest("lineage", canonical([arm, root])).removeprefix("sha256:")[:8]
        lineage = f"{name}-{own}"
    # where a ledger lies is no part of what it says, and a URI may hold a password
    document = {**container, "ranks": ranks, "ledger": {**container["ledger"], "uri": None}}
    return Experiment(
        name=name, maps=maps, task=made["task"], environment=made["environment"],
        model=made["model"], inference=made["inference"], law=law, root=root, rounds=rounds,
        ranks=ranks, lineage=lineage, branch=str(line["branch"]), parent=line["parent"],
        budget=budget, ledger=container["ledger"], store=container["store"], memo=memo,
        document=document, arm=arm,
    )  # fmt: skip


def check_shape(container: Mapping[str, Any]) -> None:
    """Refuse sections that are missing, misspelt or of another shape."""
    positive(container, "rounds")
    for name in (*GROUPS, *SECTIONS, "budget"):
        if not isinstance(container.get(name), Mapping):
            raise ValueError(
                f"{name} is {container.get(name)!r}; it must be a section with keys of its own"
            )
        for key in container[name]:
            if key not in SECTIONS.get(name, (key,)):
                raise ValueError(f"{name} has no key {key!r}; it has {', '.join(SECTIONS[name])}")
    for name in container:
        if name not in (*GROUPS, *SECTIONS, *PLAIN):
            raise ValueError(f"there is no key {name!r}; `--cfg job` shows the keys there are")
    packages = container["packages"]
    if not isinstance(packages, list) or not all(isinstance(p, str) and p for p in packages):
        raise ValueError(f"packages is {packages!r}; it is a list of package names")
    for section, key in (("ledger", "uri"), ("ledger", "experiment"), ("store", "root")):
        value = container[section].get(key)
        if not isinstance(value, str) and (value is not None or key == "experiment"):
            raise ValueError(f"{section}.{key} is {value!r}; it must be text")
    positive(container["store"], "snapshot_every", "store.")


def word(value: Any, name: str, optional: bool = False) -> Any:
    """A value as text: a whole number may be meant as a name; other numbers were words once."""
    if (isinstance(value, str) and value) or (optional and value is None):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    hint = "; text that looks like a number needs quotes" if isinstance(value, float) else ""
    raise ValueError(f"{name} is {value!r}; it must be text or a whole number{hint}")


def spread(thing: Any, ranks: int, path: str) -> Any:
    """A map that several ranks share knows how many: rounding depends on it, luck does not."""
    if ranks == 1:
        return thing
    if "ranks" not in {f.name for f in dataclasses.fields(thing)}:
        raise ValueError(f"ranks is {ranks}, but {path} runs on one rank only; set ranks to 1")
    return dataclasses.replace(thing, ranks=ranks)


def positive(container: Mapping[str, Any], name: str, path: str = "") -> int:
    value = container.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{path}{name} is {value!r}; it is a whole number, at least 1")
    return value


def budget_of(tree: Mapping[str, Any], path: str = "") -> dict[str, float]:
    """Limits by dimension, of a tree whose leaves are numbers or null."""
    limits: dict[str, float] = {}
    for key, value in tree.items():
        name = f"{path}/{key}" if path else key
        if isinstance(value, Mapping):
            limits |= budget_of(value, name)
        elif value is not None:
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(
                    f"budget.{name.replace('/', '.')} is {value!r}; it is a positive number"
                )
            limits[name] = float(value)
    return limits


def check_budget(budget: Mapping[str, float], accounting: Any) -> None:
    """A limit on what nobody counts would never stop anything."""
    counted = {d["name"].replace("/", "."): d["name"] for d in accounting.dimensions()}
    for name in budget:
        if name not in counted.values():
            raise ValueError(
                f"budget.{name.replace('/', '.')} limits what is not counted; what is: "
                f"{', '.join(counted)}"
            )
        if name.startswith("memory/"):
            raise ValueError(
                f"budget.{name.replace('/', '.')} limits a peak, which rounds do not add up; limit "
                "tokens, FLOPs, steps or seconds"
            )


def check_parts(made: Mapping[str, Any]) -> None:
    """What U is made of are maps too, and a number in their place would only fail in a round."""
    parts = {"objective": made["update"].objective}
    parts |= {f"gates.{name}": gate for name, gate in made["update"].gates.items()}
    for name, part in parts.items():
        if not dataclasses.is_dataclass(part):
            raise ValueError(f"update.{name} is {part!r}; choose one of its group in conf/update")


def check_attempts(credit: Any, rollout: Any) -> None:
    """Credit that compares attempts needs more than one."""
    check = getattr(credit, "check", None)
    if check is not None:
        check(rollout.attempts)


def check_sampling(inference: Any) -> None:
    if inference.temperature == 0:
        raise ValueError(
            "inference.temperature is 0, and greedy episodes teach nothing; it must be above 0"
        )


def make(node: Any, allowed: tuple[str, ...], path: str) -> Any:
    """Instantiate a node and all below it. Only dataclasses of allowed packages can be made."""
    if isinstance(node, Mapping) and "_target_" in node:
        cls = resolve(str(node["_target_"]), allowed, path)
        fields = {f.name: f for f in dataclasses.fields(cls) if f.init}
        given = {k: make(v, allowed, f"{path}.{k}") for k, v in node.items() if k != "_target_"}
        for key in given:
            if key not in fields:
                known = ", ".join(n for n, f in fields.items() if f.metadata.get("identity", True))
                raise ValueError(f"there is no key {path}.{key}; {path} has {known or 'none'}")
        hints = typing.get_type_hints(cls)
        given = {k: v for k, v in given.items() if not (isinstance(v, str) and v == "???")}
        given = {k: fitted(v, hints.get(k, Any), f"{path}.{k}") for k, v in given.items()}
        missing = [
            n for n, f in fields.items()
            if n not in given and f.default is dataclasses.MISSING
            and f.default_factory is dataclasses.MISSING
        ]  # fmt: skip
        if missing:
            raise ValueError(f"{path}.{missing[0]} is missing; give it a value")
        return cls(**given)
    if isinstance(node, Mapping):
        return {k: make(v, allowed, f"{path}.{k}") for k, v in node.items()}
    if isinstance(node, list):
        return [make(v, allowed, f"{path}[{i}]") for i, v in enumerate(node)]
    return node


def resolve(target: str, allowed: tuple[str, ...], path: str) -> Any:
    """The dataclass of a dotted path."""
    if not target.startswith(allowed):
        packages = ", ".join(p.rstrip(".") for p in allowed)
        raise ValueError(
            f"{path}._target_ is {target!r}; only {packages} may be used, add others to `packages`"
        )
    module, _, name = target.rpartition(".")
    import importlib

    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path}._target_ is {target!r}, which cannot be found: {error}") from None
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        raise ValueError(f"{path}._target_ is {target!r}; it must name a dataclass")
    return cls


NAMES = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}


def fitted(value: Any, hint: Any, path: str) -> Any:
    """The value as its annotation wants it; ValueError names the path of one that does not fit."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in args:
            return None
        plain = [a for a in args if a is not type(None)]
        return fitted(value, plain[0], path) if len(plain) == 1 else value
    if isinstance(origin, type) and issubclass(origin, Mapping) and not isinstance(value, Mapping):
        raise ValueError(f"{path} is {value!r}; it must be a section with keys of its own")
    if origin is tuple and not isinstance(value, list):
        raise ValueError(f"{path} is {value!r}; it must be a list, such as [a,b]")
    if origin is tuple:
        inner = args[0] if args else Any
        return tuple(fitted(v, inner, f"{path}[{i}]") for i, v in enumerate(value))
    if hint in NAMES:
        good = isinstance(value, hint) and not (hint is not bool and isinstance(value, bool))
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if not good:
            raise ValueError(f"{path} is {value!r}; it must be {NAMES[hint]}")
    return value
