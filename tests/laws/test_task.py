from dataclasses import dataclass

import pytest

from harness.forms import Instance
from harness.laws.statistics import holm
from harness.laws.task import checks
from harness.seeds.epochs import Epochs
from harness.seeds.independent import Independent
from harness.tasks.arithmetic import Arithmetic
from harness.tasks.epoch import Epoch
from harness.tasks.product import Product
from harness.tasks.vault import Vault
from harness.tasks.without_replacement import WithoutReplacement

LEVEL, SIZE = 1e-3, 4096


def rejected(sampler, task, law=None, size=SIZE):
    found = checks(sampler, task, law or Independent(), "laws", size, LEVEL)
    return [c.claim for c, bad in zip(found, holm(found, LEVEL), strict=True) if bad]


@pytest.mark.parametrize("task", [Vault(), Vault(codes=3, locks=2), Arithmetic()], ids=str)
@pytest.mark.parametrize("kind", [Product, WithoutReplacement])
def test_samplers_have_the_law_of_their_task(kind, task):
    assert rejected(kind(task, problems=4), task, size=1024) == []


def test_an_epoch_has_it_too_under_its_own_seeds():
    assert rejected(Epoch(Vault(), problems=4), Vault(), Epochs()) == []


@dataclass(frozen=True)
class Short(Vault):
    """The last code is never drawn."""

    def draw(self, seed):
        return self.nth(int(seed.hex, 16) % (self.size - 1))


@dataclass(frozen=True)
class Skewed(Vault):
    """One code is drawn half as often again."""

    def draw(self, seed):
        if int(seed.fold("skew").hex, 16) % 16 == 0:
            return self.nth(0)
        return super().draw(seed)


@dataclass(frozen=True)
class Repeating(Product):
    """Every problem of a batch is drawn under one seed."""

    def __call__(self, seed):
        return Instance({"problems": [self.task.draw(seed) for _ in range(self.problems)]})


def test_planted_faults_are_rejected_with_the_size_of_the_command():
    assert "a problem has the task's law" in rejected(Product(Short()), Short())
    assert "a problem has the task's law" in rejected(Product(Skewed()), Skewed())
    joint = "two problems of a batch have their joint law"
    assert rejected(Repeating(Vault()), Vault()) == [joint]
