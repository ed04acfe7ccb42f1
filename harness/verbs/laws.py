"""`laws`: are the declared laws of a configuration true?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.verbs._ledger import Json, line

if TYPE_CHECKING:
    from harness.laws.statistics import Check

WORDS = 512
"""Vocabularies up to this are enumerated; a larger policy's rollout is tested with the tiny one."""


def main(
    words: Annotated[
        list[str] | None, typer.Argument(help="As for a round: +round=NAME key=value …")
    ] = None,
    level: Annotated[float, typer.Option(help="Chance of any false rejection.")] = 1e-3,
    episodes: Annotated[int, typer.Option(help="Episodes against the law of R.")] = 32768,
    draws: Annotated[int, typer.Option(help="Draws against the laws of S and the seeds.")] = 4096,
    root: Annotated[str, typer.Option(help="The root of the seeds of these tests.")] = "laws",
    as_json: Json = False,
) -> None:
    """Test S, R, F and the seeds against the laws that they declare; 1 where one is rejected.

    The error rate is of the whole command (Holm). Nothing is recorded.
    """
    from harness.laws.statistics import holm

    if not 0 < level < 1 or episodes < 64 or draws < 64:
        raise ValueError(
            f"--level {level} --episodes {episodes} --draws {draws} cannot be: the level lies in "
            "(0, 1), and the others are at least 64"
        )
    checks, notes = tested(composed(words or []), root, episodes, draws, level)
    rejected = holm(checks, level)
    if as_json:
        rows = [vars(c) | {"holds": not bad} for c, bad in zip(checks, rejected, strict=True)]
        print(line({"level": level, "checks": rows, "notes": notes, "hold": not any(rejected)}))
    else:
        _show(checks, rejected, notes, level)
    raise typer.Exit(1 if any(rejected) else 0)


def composed(words: list[str]) -> dict[str, Any]:
    """The resolved configuration of a command line of rounds."""
    from pathlib import Path

    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from harness.compose import explain

    conf = Path(__file__).resolve().parent.parent / "conf"
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf), version_base="1.3"):
            made = compose("config", words)
        OmegaConf.resolve(made)
        container = OmegaConf.to_container(made)
    except (HydraException, OmegaConfBaseException) as error:
        raise ValueError(explain(error, words)) from None
    finally:
        GlobalHydra.instance().clear()
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def tested(
    document: dict[str, Any], root: str, episodes: int, draws: int, level: float
) -> tuple[list[Check], list[str]]:
    """Every check of a configuration, and what could not be tested."""
    from harness import config
    from harness.laws import feedback, seeds, task
    from harness.policies.resident import Resident

    # a law is the same on any ranks
    document = {**document, "ranks": 1}
    e = config.build(document, "laws")
    notes = [f"no test for the claim of the seeds: {claim}" for claim in seeds.untested(e.law)]
    if not e.law.claims:
        notes.append("the seed law claims nothing, so nothing of it was tested")
    found = seeds.checks(e.law, root, draws, level)
    found += task.checks(e.maps.S, e.task, e.law, root, draws, level)
    if not hasattr(e.task, "support"):
        notes.append("the task's problems cannot be listed, so S was not held to its law")
    bench, note = _bench(document, e)
    notes += [note] if note else []
    model = bench.model.initial()
    resident = Resident()
    from harness.policies.model import load_tokenizer

    inference = bench.inference.bind(load_tokenizer(model))
    found += _interaction(e, bench, resident, model, inference, root, episodes, level)
    X = bench.maps.S(bench.law.draw(root, "laws", 0).task)
    w = bench.law.draw(root, "laws", 0)
    Z = bench.maps.R(resident.policy(model, inference), bench.environment)(X, w.roll)
    if bench is e:
        found += feedback.checks(e.maps.F, X, Z, w.feed)
    return found, notes


def _bench(document: dict[str, Any], e: Any) -> tuple[Any, str]:
    """What R is tested with: the configuration itself, or the tiny policy at the vault."""
    from harness import config

    if str(document["model"]["_target_"]).startswith("harness.policies.tiny."):
        return e, ""
    own = composed([])
    own["rollout"] = document["rollout"]
    own["seeds"] = document["seeds"]
    for name in ("temperature", "top_k", "top_p", "min_p"):
        own["inference"][name] = document["inference"][name]
    note = (
        "the policy is too large to enumerate: R was tested with the tiny policy at the vault, "
        "with this rollout and sampling"
    )
    return config.build(own, "laws"), note


def _interaction(
    e: Any, bench: Any, resident: Any, model: Any, inference: Any, root: str, episodes: int,
    level: float,
) -> list[Check]:  # fmt: skip
    """R under its own settings, under each kind of truncation, and with its limits binding."""
    import dataclasses

    from harness.laws import interaction

    X = bench.maps.S(bench.law.draw(root, "laws", 0).task)
    found = []
    for name, changed, share in variants(inference):
        count = max(episodes // share, 64)
        attempts = min(count, 4096)
        seeds = [
            bench.law.draw(f"{root}/{name}", "laws", n).roll for n in range(-(-count // attempts))
        ]
        rollout = dataclasses.replace(bench.maps.R, attempts=attempts)
        policy = resident.policy(model, changed)
        found += interaction.checks(
            rollout, policy, bench.environment, X.problems[0], seeds, name=name, level=level
        )
    return found


def variants(inference: Any) -> list[tuple[str, Any, int]]:
    """Name, settings, and the share of the episodes that each gets."""
    import dataclasses

    plain = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("top_k 5", {**plain, "top_k": 5}), ("top_p 0.7", {**plain, "top_p": 0.7}),
        ("min_p 0.3", {**plain, "min_p": 0.3}), ("2 turns", {"max_turns": 2}),
    ]  # fmt: skip
    own = [("as configured", inference, 1)]
    return own + [(n, dataclasses.replace(inference, **changed), 4) for n, changed in kinds]


def _show(checks: list[Check], rejected: list[bool], notes: list[str], level: float) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None)
    for name in ("", "claim", "test", "n", "p", "verdict", "finds with power 0.9"):
        table.add_column(name, justify="right" if name in ("n", "p") else "left")
    for check, bad in zip(checks, rejected, strict=True):
        verdict = "[red]rejected[/]" if bad else "[green]holds[/]"
        p = "exact" if check.finds == "any" else f"{check.p:.2g}"
        table.add_row(
            check.family, check.claim, check.test, f"{check.size:,}", p, verdict, check.finds
        )
    # a claim that is folded cannot be read
    console = Console(width=max(Console().width, 170), highlight=False)
    console.print(table)
    for note in notes:
        console.print(f"note: {note}", style="yellow")
    failed = sum(rejected)
    verdict = f"{failed} rejected" if failed else "all hold"
    console.print(f"{len(checks)} checks at a level of {level:g} together: {verdict}")
