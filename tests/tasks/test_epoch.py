import itertools

import pytest
from scipy.stats import chisquare

from harness.round import Seed
from harness.seeds.epochs import Epochs
from harness.seeds.independent import Independent
from harness.tasks.epoch import Epoch, permutation
from harness.tasks.vault import Vault

LEVEL = 1e-4


def walk(sampler, law, rounds, root="1"):
    batches = [sampler(law.draw(root, "", n).task).problems for n in range(rounds)]
    return [problem["answer"] for batch in batches for problem in batch]


def test_every_problem_comes_once_an_epoch():
    # 8 problems, 3 a round: batches reach across the ends of epochs
    seen = walk(Epoch(Vault(codes=8), problems=3), Epochs(), 16)
    epochs = [seen[i : i + 8] for i in range(0, 48, 8)]
    assert all(len(set(epoch)) == 8 for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 6


def test_a_batch_is_a_function_of_its_seed_alone():
    sampler, law = Epoch(Vault(), problems=3), Epochs()
    late = sampler(law.draw("1", "", 7).task)
    walk(sampler, law, 9)
    assert sampler(law.draw("1", "", 7).task).id == late.id


def test_each_problem_alone_has_the_law_of_the_task():
    sampler, law = Epoch(Vault(codes=5), problems=2), Epochs()
    counts = dict.fromkeys("01234", 0)
    for root in range(1000):
        problem = sampler(law.draw(str(root), "", 3).task).problems[1]
        counts[problem["answer"]] += 1
    assert chisquare(list(counts.values())).pvalue > LEVEL


def test_permutations_are_uniform():
    counts = dict.fromkeys(itertools.permutations(range(4)), 0)
    for key in range(2400):
        counts[tuple(permutation(f"{key:024x}", 0, 4).tolist())] += 1
    assert chisquare(list(counts.values())).pvalue > LEVEL


def test_seeds_that_do_not_count_rounds_are_refused():
    seed = Independent().draw("1", "", 0).task
    assert int(seed.hex[24:], 16) >= 1 << 20
    with pytest.raises(
        ValueError,
        match=r"^sampler=epoch needs seeds that count the rounds; use seeds=epochs$",
    ):
        Epoch(Vault())(seed)


def test_a_walk_has_a_golden_beginning():
    # the order of a lineage must not move when code is refactored
    seed = Seed("0123456789abcdef01234567" + "00000002")
    assert [p["answer"] for p in Epoch(Vault(), problems=4)(seed).problems] == list("2065")
