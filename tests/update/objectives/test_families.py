"""What holds for every objective: what it normalises, skips and splits, and its configuration."""

import dataclasses
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from numpy.testing import assert_allclose

from harness.identity import Version
from harness.update.objectives.cispo import CISPO
from harness.update.objectives.cross_entropy import CrossEntropy
from harness.update.objectives.dpo import DPO
from harness.update.objectives.gspo import GSPO
from harness.update.objectives.ppo import PPO
from harness.update.objectives.reinforce import Reinforce

CONF = Path(__file__).parents[3] / "conf" / "update"
OBJECTIVES = [
    Reinforce(), PPO(dual_clip=3.0, kl="k3", kl_coef=0.1, aggregation="sequence_mean"),
    CISPO(aggregation="sequence_sum"), GSPO(clip_low=0.2, clip_high=0.2),
    GSPO(form="sequence", clip_low=0.2, clip_high=0.2, kl="k2", kl_coef=0.1), CrossEntropy(), DPO(),
]  # fmt: skip
MASKS = [[0, 1, 1, 0, 1], [0, 0, 1], [0, 1, 1, 1], [0, 0]]
CREDIT = np.repeat([1.5, 0.5, 0.0, 1.0], [5, 3, 4, 2])
rng = np.random.default_rng(3)
LOGP, REF = rng.normal(-1, 0.3, 14), rng.normal(-1, 0.3, 14)


def given(lesson, objective, order=(0, 1, 2, 3)):
    """The lesson that the objective learns from with its episodes in an order, and logp_T."""
    at = np.concatenate([np.arange(14)[[0, 5, 8, 12][b] : [5, 8, 12, 14][b]] for b in order])
    pairs = [[order.index(0), order.index(2)]] if objective.uses == "pairs" else []
    G = lesson(
        [MASKS[b] for b in order], CREDIT[at], use=objective.uses, pairs=pairs, ref_logprobs=REF[at]
    )
    return G, LOGP[at], at


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: Version.of(o).name)
def test_the_order_of_packing_changes_nothing(lesson, objective):
    G, logp, _ = given(lesson, objective)
    H, moved, at = given(lesson, objective, (3, 2, 0, 1))
    dlogp, loss = objective.coefficients(G, logp)
    other, same = objective.coefficients(H, moved)
    assert np.abs(dlogp).max() > 0.01
    assert_allclose(other, dlogp[at], rtol=1e-6, atol=1e-9)
    assert_allclose(same, loss, rtol=1e-9)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda o: Version.of(o).name)
def test_rows_that_are_skipped_have_no_coefficient(lesson, objective):
    G, logp, _ = given(lesson, objective)
    dlogp, _ = objective.coefficients(G, logp)
    mask = objective.row_mask(G)
    assert mask.dtype == bool
    assert not dlogp[~mask].any()
    assert not objective.weights(G)[~G.arrays["is_action"]].any()
    assert (objective.weights(G).dtype, dlogp.dtype) == (np.float32, np.float32)


# a weight or a ratio that is a constant of the loss has no slope: cispo, and gspo by tokens
SLOPES = [o for o in OBJECTIVES if not isinstance(o, CISPO) and getattr(o, "form", "") != "token"]


@pytest.mark.parametrize("objective", SLOPES, ids=lambda o: Version.of(o).name)
def test_the_gradient_is_the_slope_of_the_loss(lesson, objective):
    G, logp, _ = given(lesson, objective)
    dlogp, _ = objective.coefficients(G, logp)
    for t in np.flatnonzero(G.arrays["is_action"]):
        step = np.zeros(14)
        step[t] = 1e-6
        above, below = (objective.coefficients(G, logp + s)[1] for s in (step, -step))
        assert_allclose(dlogp[t], (above - below) / 2e-6, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("group", ["objective", "gate"])
def test_every_configuration_spells_the_defaults_of_its_class(group):
    files = sorted((CONF / group).glob("*.yaml"))
    assert len(files) >= 6
    for file in files:
        settings = yaml.safe_load(file.read_text())
        module, _, name = settings.pop("_target_").rpartition(".")
        assert module == f"harness.update.{group}s.{file.stem}"
        # what other groups give has no default
        given = {key: settings.pop(key) for key in list(settings) if injected(settings[key])}
        stand_ins = dict.fromkeys(given, SimpleNamespace(held_out=None))
        made = getattr(import_module(module), name)(**settings, **stand_ins)
        fields = {f.name: f.default for f in dataclasses.fields(made)}
        assert {key: fields[key] for key in given} == dict.fromkeys(given, dataclasses.MISSING)
        assert {key: fields[key] for key in settings} == {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in settings.items()
        }


def injected(setting):
    """Whether a setting is another object."""
    node = isinstance(setting, dict) and "_target_" in setting
    return node or (isinstance(setting, str) and setting.startswith("${"))
