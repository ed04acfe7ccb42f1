"""The gate on real policies, two of which are different models of equal value."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from harness.environments.vault import Vault
from harness.feedback.verified import Verified
from harness.policies.inference import Inference
from harness.policies.resident import Resident
from harness.policies.serializers.plain import Plain
from harness.policies.tiny import VOCABULARY, Tiny
from harness.rollout.sampled import Sampled
from harness.round import Seed
from harness.tasks.arithmetic import Arithmetic
from harness.tasks.split import Split
from harness.tasks.vault import Vault as Codes
from harness.update.gates.improvement import Improvement

CODES = 4
WORLD = Vault(turns=2, look=0.2, open=0.8, lucky=0.8)
"""A first look earns 0.2, a guess among four 0.8: looking twice and guessing have equal value."""
IOTA = Inference(
    serializer=Plain(), max_turn_tokens=1, max_turns=2, max_episode_tokens=2, context=32
)
SIZES: dict[str, Any] = {"hidden": 8, "heads": 2, "intermediate": 8, "layers": 1}
FINITE = {"metrics": {"loss": 0.0}}
LOOKS = {"look": 1.0}
GUESSES = dict.fromkeys("0123", 1 / CODES)


def says(words: dict[str, float]) -> Any:
    """A model that says a word with this chance, whatever went before: no layer adds anything to
    the embedding of <policy>, after which every word is sampled."""
    model = Tiny(**SIZES).initial()
    tensors = {name: t.clone() for name, t in model.tensors.items()}
    for name, tensor in tensors.items():
        if "o_proj" in name or "down_proj" in name:
            tensor.zero_()
    table = tensors["model.embed_tokens.weight"].zero_()
    table[VOCABULARY.index("<policy>"), :2] = 1.0
    # its normed embedding is √(H/2) in two places, and logits are inner products with it
    for word, chance in words.items():
        table[VOCABULARY.index(word), 0] = (60 + math.log(chance)) / math.sqrt(8 / 2)
    return model.with_tensors(tensors)


@dataclass
class Both:
    """Two models and a seed, as an update would give them."""

    before: Any
    after: Any
    seed: Seed = field(default_factory=lambda: Seed("5" * 32))
    leads: bool = True

    def __post_init__(self) -> None:
        self.residents = (Resident(), Resident())

    def policy(self, proposed: bool, inference: Any) -> Any:
        model = self.after if proposed else self.before
        return self.residents[proposed].policy(model, inference)

    def say(self, value: Any) -> Any:
        return value


def gate(**settings: Any) -> Improvement:
    given = {"task": Codes(codes=CODES), "part": "whole", "tasks": 64, "batch": 16}
    return Improvement(**{
        "environment": WORLD, "inference": IOTA, "rollout": Sampled(attempts=1),
        "feedback": Verified(), **given, **settings,
    })  # fmt: skip


def verdicts(both: Both, runs: int, **settings: Any) -> list[dict[str, Any]]:
    made, found = gate(**settings), []
    for i in range(runs):
        both.seed = Seed(f"{i:032x}").fold("run")
        found.append(made.evaluate(FINITE, both, "improvement", True)[0])
    return found


@pytest.mark.parametrize("pair", [(LOOKS, GUESSES), (GUESSES, LOOKS)], ids=["guess", "look"])
def test_different_models_of_equal_value_are_accepted_at_most_at_the_level(pair):
    runs, level = 150, 0.2
    found = verdicts(Both(says(pair[0]), says(pair[1])), runs, level=level, batch=32)
    numbers = [v["numbers"] for v in found]
    full = [n for n in numbers if n["tasks"] == 64]
    assert np.mean([n["before"] for n in full]) == pytest.approx(0.2, abs=0.02)
    most = runs * level + 3 * math.sqrt(runs * level * (1 - level))
    accepted = sum(v["passed"] for v in found)
    assert accepted <= most
    assert len({n["difference"] for n in numbers}) > 5
    # to accept whatever came out better is found out by the same bound
    assert sum(n["difference"] > 0 for n in numbers) > most


def test_a_better_model_is_accepted_soon():
    seldom = dict.fromkeys("0123", 0.05) | {"nothing": 0.8}
    found = verdicts(Both(says(seldom), says(GUESSES)), 15, tasks=1024, batch=64)
    assert sum(v["passed"] for v in found) >= 14
    assert np.mean([v["numbers"]["tasks"] for v in found]) < 700
    for v in found:
        n = v["numbers"]
        assert (n["bound"] > 0) == (n["p"] <= n["alpha"]) == v["passed"]
        assert n["bound"] < n["difference"] == pytest.approx(n["after"] - n["before"])


def test_a_better_model_may_be_asked_for_more():
    both = Both(says({"nothing": 1.0}), says(LOOKS))
    assert verdicts(both, 1, margin=0.1, tasks=256)[0]["passed"]
    assert not verdicts(both, 1, margin=0.3)[0]["passed"]
    # and a model that is a little worse may be let pass
    back = Both(says(LOOKS), says({"nothing": 1.0}))
    assert verdicts(back, 1, margin=-0.4)[0]["passed"]


def test_the_same_model_ties_on_every_task():
    (found,) = verdicts(Both(says(GUESSES), says(GUESSES)), 1)
    numbers = found["numbers"]
    assert not found["passed"]
    assert numbers["before"] == numbers["after"] > 0
    assert (numbers["p"], numbers["tasks"]) == (1.0, 64)


def test_the_level_is_shared_by_the_rounds_of_the_horizon():
    assert gate(level=0.1, horizon=20).alpha == pytest.approx(0.005)
    (found,) = verdicts(Both(says(LOOKS), says(LOOKS)), 1, level=0.1, horizon=20)
    numbers = found["numbers"]
    assert (numbers["alpha"], numbers["level"], numbers["horizon"]) == (0.005, 0.1, 20)


def test_tasks_are_new_each_round_and_the_same_for_both_models():
    seen: list[tuple[str, str]] = []

    @dataclass(frozen=True)
    class Watching(Verified):
        def __call__(self, X, Z, seed):
            seen.append((X.id, seed.hex))
            return super().__call__(X, Z, seed)

    verdicts(Both(says(LOOKS), says(LOOKS)), 2, tasks=32, feedback=Watching())
    assert len(seen) == 8
    assert len(set(seen)) == 4
    assert all(seen.count(pair) == 2 for pair in seen)


def test_only_what_was_kept_from_training_is_evaluated():
    task = Split(Arithmetic(), share=0.3)
    law = gate(task=task, part="held_out").law
    assert {law.draw(Seed(f"{i:032x}").fold("x"))["expression"] for i in range(200)} <= {
        problem["expression"] for problem, _ in task.held_out().support()
    }


def test_nothing_is_rolled_out_for_a_proposal_that_is_lost_anyway():
    both = Both(says(LOOKS), says(LOOKS))
    for report, wanted in ((FINITE, False), ({"metrics": {"loss": "nan"}}, True)):
        found, work = gate().evaluate(report, both, "improvement", wanted)
        assert (found["passed"], found["numbers"]["tasks"], work) == (False, 0, [])


def test_its_work_is_what_it_rolled_out_and_within_its_bound():
    made = gate(tasks=40)
    _, work = made.evaluate(FINITE, Both(says(LOOKS), says(GUESSES)), "improvement", True)
    assert len(work) == 6
    # two turns of a word in 40 tasks, and one guess in each
    assert sum(w.sampled for w in work) == 40 * 2 + 40 == sum(w.steps for w in work)
    assert made.most() == {"tokens/sampled": 160, "environment/steps": 160}


def test_a_reward_outside_of_the_range_is_refused():
    with pytest.raises(ValueError, match=r"range is \[0, 0.1\], but .* rewarded 0.2; give a range"):
        verdicts(Both(says(LOOKS), says(LOOKS)), 1, range=(0.0, 0.1))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"part": "held_out"}, "Vault keeps none from training; use task=split, or say part=whole"),
        ({"part": "half"}, "part is half; it is held_out or whole"),
        ({"level": 1.0}, "level is 1.0; it is a chance between 0 and 1"),
        ({"horizon": 0}, "horizon is 0; it is at least 1"),
        ({"margin": 1.5}, "margin is 1.5; it is less than the width of its range, 1"),
        ({"range": (1.0, 0.0)}, "range is .1.0, 0.0.; it is two finite numbers"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        gate(**settings)
