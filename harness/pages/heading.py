"""The head of the page: what was decided, on what grounds, at what cost, and by which versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from harness.pages.card import identifiers, versions
from harness.pages.reading import Reading
from harness.pages.text import markup, number, short
from harness.pages.tokens import LEVELS

ORDERS = {
    "attempt": "attempt", "best": "reward, best first", "worst": "reward, worst first",
    "longest": "length",
}  # fmt: skip
FILTERS = {
    "all": "all", "above": "above the mean of their problem",
    "below": "below the mean of their problem", "cut": "ended by a limit or a failure",
}  # fmt: skip


def heading(reading: Reading, name: str, links: Mapping[str, str], picture: str) -> str:
    """Everything above the problems."""
    n = reading.record.n
    anchors = " · ".join(
        f'<a href="{markup(address, 2000)}" rel="noreferrer" target="_blank">{markup(label)}</a>'
        for label, address in links.items()
    )
    return (
        f"<header><h1><bdi>{markup(name)}</bdi> <small>round {n}</small></h1>"
        f"{f'<p>{anchors}</p>' if anchors else ''}{_verdict(reading)}"
        f"<div class=top><figure>{picture}</figure><div>{_figures(reading)}{_gates(reading)}"
        f"{_details(reading)}</div></div></header>{_bar(reading)}"
    )


def _verdict(reading: Reading) -> str:
    if reading.accepted:
        return '<p class="verdict accepted">Accepted: the next round starts from the proposal.</p>'
    failed = [markup(gate["name"], 60) for gate in reading.gates if not gate["passed"]]
    because = f" Not passed: {', '.join(failed)}." if failed else ""
    return (
        '<p class="verdict rejected">Rejected: the next round starts from the state that this one '
        f"started from.{because}</p>"
    )


def _figures(reading: Reading) -> str:
    (mean, std), metrics = reading.reward, reading.metrics
    named = {"policy/kl": "KL", "policy/entropy": "entropy", "grad_norm": "gradient norm"}
    shown = [
        (f"{number(mean, digits=3)} ± {number(std, digits=3)}", "reward"),
        (f"{reading.record.Z.problems} × {reading.attempts}", "problems × attempts"),
        (number(int(reading.sampled_B.sum())), "sampled tokens"),
        (
            number(float(reading.lengths_B.mean()) if len(reading.lengths_B) else 0, digits=3),
            "mean length",
        ),
        *(
            (number(metrics[key], digits=3), label)
            for key, label in named.items()
            if key in metrics
        ),
    ]
    tiles = "".join(f"<div><strong>{markup(x, 40)}</strong>{label}</div>" for x, label in shown)
    ended = " · ".join(f"{count} {words}" for words, count in reading.stops())
    return f"<div class=figures>{tiles}</div><p>Ends: {ended}.</p>"


def _gates(reading: Reading) -> str:
    if not reading.gates:
        return ""
    rows = "".join(
        f"<tr><td>{'✓ passed' if gate['passed'] else '<span class=no>✗ not passed</span>'}"
        f"<td>{markup(gate['name'], 60)}<td>{_pairs(gate['numbers'])}"
        for gate in reading.gates[:32]
    )
    return f"<table><tr><th>verdict<th>gate<th>numbers{rows}</table>"


def _pairs(numbers: Mapping[str, Any]) -> str:
    return markup(", ".join(f"{k} {number(v)}" for k, v in list(numbers.items())[:12]))


def _details(reading: Reading) -> str:
    """What is folded: every measure, cost, identifier, version and seed."""
    record = reading.record
    cost = {**record.cost.computed, **record.cost.metered}
    ids = [(k, _identifier(v)) for k, v in identifiers(reading)]
    maps = [(k, f"{markup(v.name)} {_identifier(v.settings)}") for k, v in versions(reading)]
    seeds = [(k, f"<code>{markup(v)}</code>") for k, v in record.seeds.exact().items()]
    sampling = record.Z.meta.get("sampling", {})
    return (
        "<div class=folds>"
        + (
            _folded("costs", ((k, markup(number(v))) for k, v in cost.items()))
            + _folded("measured", ((k, markup(number(v))) for k, v in reading.metrics.items()))
            + _folded("identifiers", ids)
            + _folded("versions of maps, and their settings", maps)
            + _folded("seeds", seeds)
            + _folded("sampling", ((k, markup(number(v))) for k, v in sampling.items()))
        )
        + "</div>"
    )


def _identifier(text: str) -> str:
    return f'<code title="{markup(text)}">{markup(short(text))}</code>'


def _folded(title: str, rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(f"<tr><th>{markup(name, 80)}<td>{value}" for name, value in list(rows)[:200])
    if not body:
        return ""
    return f"<details class=more><summary>{title}</summary><table>{body}</table></details>"


def _bar(reading: Reading) -> str:
    """The legend, and controls that appear where scripts may run."""
    swatches = "".join(f"<b class=n{i}>&nbsp;</b>" for i in range(LEVELS, 0, -1))
    swatches += "<b class=z>0</b>"
    swatches += "".join(f"<b class=p{i}>&nbsp;</b>" for i in range(1, LEVELS + 1))
    low, high = number(-reading.scale, sign=True), number(reading.scale, sign=True)
    return (
        f"<div class=bar><span>credit {low} {swatches} {high}</span>"
        "<span><i>grey</i> shown to the policy, not sampled</span><span>point at a token for its "
        "id, log p and credit</span><span class=controls hidden>"
        f"order <select>{_options(ORDERS)}</select> show <select>{_options(FILTERS)}</select> "
        "<button>unfold</button> <button>fold</button> <output></output></span></div>"
    )


def _options(choices: Mapping[str, str]) -> str:
    return "".join(f"<option value={key}>{label}</option>" for key, label in choices.items())
