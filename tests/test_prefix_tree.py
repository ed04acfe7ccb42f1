import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.prefix_tree import Batch, batches, collate, forest, grow

Episode = tuple[list[int], list[bool]]


def pack(episodes: list[Episode]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    tokens = np.array([t for ids, _ in episodes for t in ids], np.int32)
    live = np.array([x for _, mask in episodes for x in mask], bool)
    return tokens, live, np.cumsum([0, *(len(ids) for ids, _ in episodes)])


def tree_of(episodes: list[Episode]):
    tokens, live, offsets = pack(episodes)
    return grow(tokens, live, list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)))


def wanted_rows(episodes: list[Episode]) -> list[tuple[int, tuple[int, ...]]]:
    """Brute force: each row, with the whole past that predicts it."""
    _, _, offsets = pack(episodes)
    return [
        (int(offsets[b]) + t, tuple(ids[:t]))
        for b, (ids, mask) in enumerate(episodes)
        for t in range(1, len(ids))
        if mask[t]
    ]


def past(batch: Batch, node: int) -> tuple[int, ...]:
    """What a node attends to, in the order of positions; they must be 0, 1, …, without a gap."""
    width = batch.token_ids_KL.shape[1]
    k, i = divmod(node, width)
    seen = np.flatnonzero(batch.mask_KLL[k, i])
    positions = batch.position_KL[k, seen]
    order = np.argsort(positions)
    assert positions[order].tolist() == list(range(len(seen)))
    assert seen[order][-1] == i
    return tuple(batch.token_ids_KL[k, seen[order]].tolist())


def check(batch: Batch, episodes: list[Episode]) -> None:
    found = [
        (int(row), past(batch, int(node)))
        for row, node in zip(batch.row_T, batch.node_R, strict=True)
    ]
    assert sorted(found) == wanted_rows(episodes)


few = st.lists(st.tuples(st.integers(1, 3), st.booleans()), min_size=1, max_size=9)
groups = st.lists(few, min_size=1, max_size=6).map(
    lambda rows: [([t for t, _ in row], [x for _, x in row]) for row in rows]
)


@given(groups)
@settings(max_examples=150, deadline=None)
def test_a_tree_is_what_each_episode_alone_would_be(episodes):
    tree = tree_of(episodes)
    if not len(tree.row_T):
        assert not wanted_rows(episodes)
        return
    check(collate([tree]), episodes)
    width = len(tree.token_ids_L) + 2
    enter, last = tree.visits(width)
    seen = (enter <= enter[:, None]) & (enter[:, None] <= last)
    assert seen.tolist() == tree.mask(width).tolist()


@given(groups)
@settings(max_examples=100, deadline=None)
def test_no_prefix_is_computed_twice(episodes):
    tree = tree_of(episodes)
    ends = [max((t for t in range(1, len(i)) if m[t]), default=0) for i, m in episodes]
    prefixes = {
        tuple(ids[: n + 1]) for (ids, _), end in zip(episodes, ends, strict=True)
        for n in range(end)
    }  # fmt: skip
    assert len(tree.token_ids_L) == len(prefixes)


@given(st.lists(groups, min_size=1, max_size=4), st.integers(1, 60), st.booleans())
@settings(max_examples=100, deadline=None)
def test_any_budget_and_sharing_give_the_same_rows(problems, budget, share):
    attempts = max(len(group) for group in problems)
    episodes = [e for group in problems for e in (group + group[:1] * attempts)[:attempts]]
    tokens, live, offsets = pack(episodes)
    found: list[tuple[int, tuple[int, ...]]] = []
    trees = forest(tokens, live, offsets, attempts, share=share)
    for batch in batches(trees, budget):
        assert batch.tokens == batch.token_ids_KL.size
        assert batch.tokens <= budget or len(batch.token_ids_KL) == 1
        found += [
            (int(row), past(batch, int(node)))
            for row, node in zip(batch.row_T, batch.node_R, strict=True)
        ]
    assert sorted(found) == wanted_rows(episodes)


def test_a_group_shares_its_prompt():
    prompt = [7, 8, 9]
    group = [
        ([*prompt, 1, 2], [False] * 3 + [True] * 2),
        ([*prompt, 1, 3], [False] * 3 + [True] * 2),
    ]
    tree = tree_of(group)
    # the last token of each is predicted, never attended from: 7 8 9 1 is all
    assert tree.token_ids_L.tolist() == [7, 8, 9, 1]
    assert tree.row_T.tolist() == [3, 4, 8, 9]
    assert tree.node_R.tolist() == [2, 3, 2, 3]


def test_branches_do_not_see_each_other():
    group = [([7, 1, 2, 5], [False, True, True, True]), ([7, 3, 4, 5], [False, True, True, True])]
    tree = tree_of(group)
    assert tree.token_ids_L.tolist() == [7, 1, 2, 3, 4]
    assert tree.depth_L.tolist() == [0, 1, 2, 1, 2]
    expected = np.eye(5, dtype=bool)
    expected[:, 0] = True
    expected[2, 1] = expected[4, 3] = True
    assert np.array_equal(tree.mask(5), expected)


def test_identical_episodes_are_computed_once_and_each_has_its_rows():
    one = ([5, 6, 7, 8], [False, True, True, True])
    tree = tree_of([one, one, one])
    assert tree.token_ids_L.tolist() == [5, 6, 7]
    assert tree.row_T.tolist() == [1, 2, 3, 5, 6, 7, 9, 10, 11]
    assert tree.node_R.tolist() == [0, 1, 2] * 3


def test_an_episode_that_is_a_prefix_of_another_adds_nothing():
    long, short = ([1, 2, 3, 4], [False, True, True, True]), ([1, 2, 3], [False, True, True])
    assert len(tree_of([long, short]).token_ids_L) == len(tree_of([long]).token_ids_L) == 3


def test_episodes_without_a_common_prompt_share_only_the_tree():
    tree = tree_of([([1, 2, 3], [False, True, True]), ([4, 5, 6], [False, True, True])])
    assert [parent for *_, parent in tree.segments] == [-1, -1]
    assert tree.mask(4).sum() == 6


def test_an_episode_is_cut_after_its_last_wanted_row():
    ids, mask = [1, 2, 3, 4, 5, 6], [False, True, False, True, False, False]
    tree = tree_of([(ids, mask)])
    assert tree.token_ids_L.tolist() == [1, 2, 3]
    assert tree.row_T.tolist() == [1, 3]


def test_a_first_token_that_nothing_predicts_is_no_row():
    tree = tree_of([([1, 2], [True, True])])
    assert tree.row_T.tolist() == [1]


@pytest.mark.parametrize(
    "episodes", [[], [([], [])], [([1, 2, 3], [False] * 3)], [([1], [True])]], ids=str
)
def test_nothing_wanted_is_no_tree(episodes):
    tokens, live, offsets = pack(episodes)
    assert forest(tokens.astype(np.int32), live.astype(bool), offsets, 1, share=True) == []
    assert batches([], 10) == []


def test_groups_without_a_wanted_row_have_no_tree():
    dead, alive = ([1, 2], [False, False]), ([1, 2], [False, True])
    tokens, live, offsets = pack([dead, dead, alive, dead])
    trees = forest(tokens, live, offsets, 2, share=True)
    assert [tree.row_T.tolist() for tree in trees] == [[5]]


def test_padding_attends_to_itself_only():
    small, large = tree_of([([1, 2], [False, True])]), tree_of([([1, 2, 3], [False, True, True])])
    batch = collate([small, large])
    assert batch.mask_KLL[0].tolist() == [[True, False], [False, True]]
    assert batch.node_R.tolist() == [0, 2, 3]
