from dataclasses import dataclass, field

import numpy as np

from harness.forms import Instance, Scores, Trajectories
from harness.laws.feedback import checks
from harness.round import Seed

X, Z, ROOT = Instance({"problems": []}), Trajectories({}), Seed("0" * 32)


@dataclass
class Judge:
    """A random judge; `memory` makes it depend on what it was asked before."""

    memory: bool = False
    calls: list = field(default_factory=list)

    def __call__(self, X, Z, seed):
        self.calls.append(seed)
        noise = len(self.calls) if self.memory else 0
        return Scores({}, {"rewards": np.array([seed.key % 1000 + noise], np.float64)})


def test_a_random_judge_that_keeps_to_its_seed_holds():
    (check,) = checks(Judge(), X, Z, ROOT)
    assert check.p == 1
    assert check.test == "random: 8 of 8 seeds differ"


def test_one_that_remembers_is_rejected():
    (check,) = checks(Judge(memory=True), X, Z, ROOT)
    assert check.p == 0


def test_one_without_randomness_is_said_to_be():
    (check,) = checks(lambda X, Z, seed: Scores({}), X, Z, ROOT)
    assert (check.p, check.test) == (1, "deterministic")
