from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from harness.environments.arithmetic_tool import ArithmeticTool
from harness.forms import Call, Event, Instance, Stop, Trajectories
from harness.kernels.philox_sample import sample
from harness.policies.inference import Inference
from harness.policies.model import build_module, load_tokenizer, read_folder
from harness.policies.resident import Resident
from harness.policies.serializers.chat import Chat
from harness.policies.serializers.plain import Plain
from harness.policies.tiny import Tiny
from harness.rollout.sampled import Sampled
from harness.round import Seed
from harness.work import work_of

SEED = Seed("22" * 16)
MODEL = Tiny(hidden=32, heads=2, intermediate=64, scale=0.3).initial()
IOTA = Inference(
    serializer=Plain(), max_turn_tokens=3, max_turns=3, max_episode_tokens=9, context=64,
)  # fmt: skip
FAMILIES: list[dict[str, Any]] = [
    {}, {"temperature": 0.6}, {"top_p": 0.7, "temperature": 1.4}, {"top_k": 4}, {"min_p": 0.1},
    {"top_k": 9, "top_p": 0.8, "min_p": 0.02, "temperature": 0.7},
]  # fmt: skip


@dataclass(frozen=True)
class Parrot:
    """Says a word after every turn, and ends as it is told to."""

    version: ClassVar[str] = "1"
    words: tuple[str, ...] = ("code 1", "nothing")
    last: int = 99
    """Turn after which it is done."""
    fails: int = 99
    """Turn at which its tool breaks."""

    tools: ClassVar[list[Any]] = []

    def reset(self, problem: Any, seed: Seed) -> tuple[int, list[dict[str, Any]]]:
        return 0, [{"role": "user", "content": problem["text"]}]

    def step(self, state: int, action: Any) -> tuple[int, Event]:
        if state == self.fails:
            raise RuntimeError("the tool is broken")
        said = [{"role": "user", "content": self.words[state % len(self.words)]}]
        return state + 1, Event(said, reward=float(state), done=state >= self.last)


def X(*texts: str) -> Instance:
    return Instance({"problems": [{"text": text} for text in texts]})


TWO = X("vault closed", "code 7 vault wrong closed opened")


def roll(
    iota: Inference = IOTA, environment: Any = Parrot(), instance: Instance = TWO,
    attempts: int = 4, seed: Seed = SEED, resident: Resident | None = None, model: Any = MODEL,
    **settings: Any,
) -> Trajectories:  # fmt: skip
    policy = (resident or Resident()).policy(model, iota)
    return Sampled(attempts=attempts, **settings)(policy, environment)(instance, seed)


def episode(Z: Trajectories, b: int, name: str = "token_ids") -> np.ndarray:
    return Z.arrays[name][Z.episode_offsets[b] : Z.episode_offsets[b + 1]]


def count(Z: Trajectories) -> int:
    return len(Z.episode_offsets) - 1


def recomputed(module: Any, Z: Trajectories, b: int) -> np.ndarray:
    """An episode's log-probabilities by one full forward pass, tempered and truncated."""
    ids = torch.from_numpy(episode(Z, b).astype(np.int64))
    d = module(input_ids=ids[None]).logits[0].double() / Z.meta["sampling"]["temperature"]
    d = d - d.amax(-1, keepdim=True)
    if "threshold" in Z.arrays:
        # the set that predicts token t is that of position t - 1
        cut = torch.from_numpy(episode(Z, b, "threshold").astype(np.float64))[1:]
        d[:-1] = d[:-1].masked_fill(d[:-1] < cut[:, None], -torch.inf)
    logp = d.log_softmax(-1)[:-1].gather(1, ids[1:, None])[:, 0]
    found = np.concatenate([[0.0], logp.numpy()])
    return np.where(episode(Z, b, "is_action"), found, 0.0)


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_recorded_logprobs_are_those_of_a_full_forward_pass(family):
    Z, module = roll(replace(IOTA, **family)), build_module(MODEL)
    assert ("threshold" in Z.arrays) == (not {"temperature"} >= set(family))
    for b in range(count(Z)):
        assert episode(Z, b, "logprobs") == pytest.approx(recomputed(module, Z, b), abs=1e-5)
    assert (Z.logprobs_T[Z.is_action_T] < 0).any()
    assert (Z.logprobs_T[~Z.is_action_T] == 0).all()


def test_a_recorded_kept_set_is_that_of_its_definition():
    Z, module = roll(replace(IOTA, top_k=6, top_p=0.8, min_p=0.03)), build_module(MODEL)
    sizes = set()
    for b in range(count(Z)):
        ids = torch.from_numpy(episode(Z, b).astype(np.int64))
        p = module(input_ids=ids[None]).logits[0].double().softmax(-1)
        for t in np.flatnonzero(episode(Z, b, "is_action")):
            row = p[t - 1]
            order = row.argsort(descending=True)
            nucleus = int((row[order].cumsum(0) < 0.8).sum()) + 1
            floor = int((row >= 0.03 * row.max()).sum())
            kept = set(order[: min(6, nucleus, floor)].tolist())
            d = (row / row.max()).log()
            assert set((d >= episode(Z, b, "threshold")[t]).nonzero()[:, 0].tolist()) == kept
            assert int(ids[t]) in kept
            sizes.add(len(kept))
    assert len(sizes) > 1


def test_the_same_seeds_give_the_same_trajectories_bit_for_bit():
    resident = Resident()
    first = roll(resident=resident)
    assert roll(resident=resident).id == first.id == roll().id
    assert roll(seed=Seed("23" * 16)).id != first.id


def test_a_module_that_held_another_model_gives_the_same():
    resident = Resident()
    other = Tiny(hidden=32, heads=2, intermediate=64, scale=0.3, seed=5).initial()
    assert roll(resident=resident, model=other).id != roll().id
    assert roll(resident=resident).id == roll().id


@pytest.mark.parametrize("rows", [1, 3])
def test_an_episode_does_not_depend_on_the_batch_it_decodes_in(rows):
    # logits may change in their last bits with the batch: tokens agree unless u is that near a cut
    together, apart = roll(), roll(replace(IOTA, decode_rows=rows))
    assert np.array_equal(together.token_ids_T, apart.token_ids_T)
    assert together.logprobs_T == pytest.approx(apart.logprobs_T, abs=1e-5)
    assert together.meta["episodes"] == apart.meta["episodes"]


def test_an_episode_does_not_depend_on_the_other_problems():
    both, alone = roll(), roll(instance=X("vault closed"))
    for g in range(4):
        assert np.array_equal(episode(both, g), episode(alone, g))


def test_more_attempts_leave_the_first_ones_as_they_were():
    few, many = roll(attempts=2), roll(attempts=5)
    for p in range(2):
        for g in range(2):
            assert np.array_equal(episode(few, 2 * p + g), episode(many, 5 * p + g))


@pytest.mark.parametrize("rows", [1, 2])
def test_prompts_may_be_prefilled_in_groups(rows):
    three = X("vault closed", "code 7 vault wrong closed opened", "look")
    whole = roll(instance=three)
    parts = roll(replace(IOTA, prefill_rows=rows), instance=three)
    assert np.array_equal(whole.token_ids_T, parts.token_ids_T)
    assert whole.logprobs_T == pytest.approx(parts.logprobs_T, abs=1e-5)


def test_members_of_a_group_differ():
    Z = roll(attempts=8)
    for p in range(2):
        group = {tuple(episode(Z, 8 * p + g)) for g in range(8)}
        assert len(group) > 4


def test_antithetic_pairs_share_their_key_and_reflect_it():
    Z = roll(replace(IOTA, max_turns=1), attempts=6, antithetic=True)
    plain = roll(replace(IOTA, max_turns=1), attempts=6)
    module = build_module(MODEL)
    for p in range(2):
        prompt = torch.from_numpy(episode(Z, 6 * p).astype(np.int64))
        start = int(np.flatnonzero(episode(Z, 6 * p, "is_action"))[0])
        logits = module(input_ids=prompt[None, :start]).logits[0, -1:].float()
        for g in range(6):
            key = SEED.fold("episode", p, g - g % 2).fold("policy").key
            token, *_ = sample(
                logits, torch.tensor([key - (1 << 64) if key >> 63 else key]), torch.tensor([0]),
                temperature=1.0, antithetic_B=torch.tensor([g % 2 == 1]),
            )  # fmt: skip
            assert episode(Z, 6 * p + g)[start] == int(token)
            if g % 2 == 0:
                assert np.array_equal(episode(Z, 6 * p + g), episode(plain, 6 * p + g))
    pairs = [(episode(Z, b), episode(Z, b + 1)) for b in range(0, 12, 2)]
    assert not all(np.array_equal(a, b) for a, b in pairs)


def test_tokens_are_the_serializers_and_nothing_is_tokenised_again():
    Z, tokenizer = roll(), load_tokenizer(MODEL)
    again(Z, Plain(), tokenizer, [p["text"] for p in TWO.problems], [])


def again(Z: Trajectories, serializer: Any, tokenizer: Any, texts: list[str], tools: Any) -> None:
    """Build each episode from its actions' tokens and its recorded observations."""
    turns = list(
        zip(*(Z.arrays[f"turn_{name}"] for name in ("episode", "start", "end")), strict=True)
    )
    for b in range(count(Z)):
        prompt = [{"role": "user", "content": texts[b // Z.attempts]}]
        expected = list(serializer.begin(tokenizer, prompt, tools))
        spans = [(start, end) for e, start, end in turns if e == b]
        for i, (start, end) in enumerate(spans):
            ids = Z.token_ids_T[start:end].tolist()
            assert start == Z.episode_offsets[b] + len(expected)
            assert Z.is_action_T[start:end].all()
            expected += ids
            said = Z.episodes[b]["turns"][i]
            assert said["action"]["text"] == serializer.parse(tokenizer, ids).text
            if i + 1 < len(spans):
                expected += serializer.extend(tokenizer, ids, said["event"]["messages"])
        assert episode(Z, b).tolist() == expected
        assert episode(Z, b, "is_action").sum() == sum(end - start for start, end in spans)
        assert len(Z.episodes[b]["turns"]) == len(spans)


def test_what_comes_later_does_not_move_what_came_before():
    # decoded together, so every step has the same shape: equal bits
    long = roll(replace(IOTA, max_turn_tokens=1, max_turns=6))
    short = roll(replace(IOTA, max_turn_tokens=1, max_turns=2))
    told = roll(
        replace(IOTA, max_turn_tokens=1, max_turns=6), Parrot(words=("code 1", "opened", "wrong"))
    )
    for b in range(count(long)):
        n = len(episode(short, b))
        for name in ("token_ids", "logprobs", "is_action"):
            assert np.array_equal(episode(long, b, name)[:n], episode(short, b, name))
            assert np.array_equal(episode(told, b, name)[:n], episode(short, b, name))
        assert not np.array_equal(episode(told, b), episode(long, b))


def test_an_environment_that_is_done_terminates():
    Z = roll(environment=Parrot(last=1))
    assert (Z.stop_B == Stop.TERMINATED).all()
    assert (np.bincount(Z.arrays["turn_episode"]) == 2).all()
    assert Z.arrays["turn_rewards"].reshape(-1, 2).tolist() == [[0.0, 1.0]] * 8


def test_turns_run_out():
    Z = roll()
    assert (Z.stop_B == Stop.TURN_BUDGET).all()
    assert (np.bincount(Z.arrays["turn_episode"]) == 3).all()
    assert Z.arrays["turn_rewards"].tolist() == [0.0, 1.0, 2.0] * 8


def test_tokens_run_out_and_are_never_exceeded():
    Z = roll(replace(IOTA, max_turns=50, max_episode_tokens=7))
    assert (Z.stop_B == Stop.TOKEN_BUDGET).all()
    for b in range(count(Z)):
        assert episode(Z, b, "is_action").sum() == 7


def test_the_context_fills_up_and_is_never_exceeded():
    Z = roll(replace(IOTA, context=16, max_turns=50), instance=X("vault closed"))
    assert (Z.stop_B == Stop.CONTEXT_FULL).all()
    lengths = np.diff(Z.episode_offsets)
    assert (lengths <= 16).all()
    assert (lengths > 10).all()


def test_a_turn_ends_where_the_context_does():
    Z = roll(replace(IOTA, context=9, max_turn_tokens=9), instance=X("vault closed"))
    whole = [b for b in range(count(Z)) if len(episode(Z, b)) == 9]
    assert whole
    assert all(episode(Z, b, "is_action")[-1] for b in whole)
    assert (Z.stop_B == Stop.CONTEXT_FULL).all()


def test_a_prompt_that_does_not_fit_is_an_episode_without_turns():
    iota = replace(IOTA, context=9)
    long = "code 7 vault wrong closed opened"
    Z = roll(iota, instance=X(long, "look", long), attempts=2)
    assert [len(e["turns"]) == 0 for e in Z.episodes] == [True, True, False, False, True, True]
    assert (Z.stop_B[[0, 1, 4, 5]] == Stop.CONTEXT_FULL).all()
    assert not episode(Z, 0, "is_action").any()
    assert set(Z.arrays["turn_episode"].tolist()) == {2, 3}
    only = roll(replace(iota, context=9), instance=X("look"), attempts=2)
    assert episode(only, 0, "is_action").any()
    assert episode(Z, 2)[:4].tolist() == episode(only, 0)[:4].tolist()


def test_a_batch_without_a_single_turn_is_packed():
    Z = roll(replace(IOTA, context=9), instance=X("code 7 vault wrong closed opened"), attempts=3)
    assert Z.meta["episodes"] == [{"turns": []}] * 3
    assert Z.arrays["turn_start"].shape == Z.arrays["turn_rewards"].shape == (0,)
    assert not Z.is_action_T.any()
    assert Z.arrays["turn_start"].dtype == np.int64
    assert Z.id.startswith("sha256:")


def test_a_tool_that_fails_is_data():
    Z = roll(environment=Parrot(fails=1))
    assert (Z.stop_B == Stop.TOOL_FAILURE).all()
    for e in Z.episodes:
        assert len(e["turns"]) == 2
        event = e["turns"][1]["event"]
        assert event["stop"] == "TOOL_FAILURE"
        assert event["calls"][0]["error"] == "RuntimeError: the tool is broken"
    assert Z.arrays["turn_rewards"].tolist() == [0.0] * 16


@dataclass(frozen=True)
class Broken(Parrot):
    """Its second answer is no event that a record can hold."""

    answer: Any = None

    def step(self, state: int, action: Any) -> tuple[int, Any]:
        return super().step(state, action) if state == 0 else (state, self.answer)


@pytest.mark.parametrize(
    "answer",
    [
        Event([{"role": "user", "content": "\ud800"}]),
        Event([], reward=float("nan")),
        Event([], calls=({"name": "add", "arguments": {}, "result": 2**64 + 1},)),
        None,
    ],
    ids=["surrogate", "nan", "integer", "nothing"],
)
def test_an_answer_that_no_record_can_hold_is_a_tool_failure(answer):
    Z = roll(environment=Broken(answer=answer))
    assert (Z.stop_B == Stop.TOOL_FAILURE).all()
    assert (np.bincount(Z.arrays["turn_episode"]) == 2).all()


def test_one_failing_episode_leaves_the_others_alone():
    @dataclass(frozen=True)
    class Sometimes(Parrot):
        def step(self, state: int, action: Any) -> tuple[int, Event]:
            if "code" in action.text or "a" in action.text:
                raise KeyError("code")
            return super().step(state, action)

    Z, whole = roll(environment=Sometimes(), attempts=8), roll(attempts=8)
    failed = Z.stop_B == Stop.TOOL_FAILURE
    assert 0 < failed.sum() < 16
    for b in np.flatnonzero(~failed):
        assert np.array_equal(episode(Z, b), episode(whole, b))


@pytest.mark.parametrize("attempts", [0, -1])
def test_no_attempts_are_refused(attempts):
    with pytest.raises(ValueError, match=f"rollout.attempts is {attempts}; it is at least 1"):
        Sampled(attempts=attempts)


def test_trajectories_cannot_be_written_into():
    Z = roll()
    with pytest.raises(ValueError, match="read-only"):
        Z.logprobs_T[:] = 0


def test_progress_is_told_and_changes_nothing():
    told: dict[str, list[int]] = {}

    def progress(name, count, attended=0, model=None):
        told.setdefault(name, [0, 0])
        told[name][0] += count
        told[name][1] += attended

    Z = roll(progress=progress)
    work = work_of(Z)
    tokens = ("tokens/prompt", "tokens/observed", "tokens/sampled")
    assert [told[n][0] for n in tokens] == [work.prompt, work.observed, work.sampled]
    assert sum(told[n][1] for n in tokens) == work.attended
    assert told["environment/steps"][0] == work.steps
    assert Z.id == roll().id


def test_smollm2_answers_through_its_template_and_sees_what_the_tool_says(smollm2_folder):
    model = read_folder(smollm2_folder, dtype="bfloat16")
    tokenizer = load_tokenizer(model)
    iota = Inference(
        serializer=Chat().bind(tokenizer), max_turn_tokens=6, max_turns=2, max_episode_tokens=10,
        temperature=0.7, top_p=0.9, context=512,
    )  # fmt: skip
    texts = ["What is 17 + 4?", "Work out 3 * (4 + 5) with the calculator."]
    instance = Instance(
        {
            "problems": [
                {"messages": [{"role": "user", "content": text}], "expression": "17+4",
                 "answer": "21"}
                for text in texts
            ]
        }
    )  # fmt: skip
    environment, resident = Asks(), Resident()
    Z = roll(iota, environment, instance, 2, model=model, resident=resident)
    assert roll(iota, environment, instance, 2, model=model, resident=resident).id == Z.id
    again(Z, iota.serializer, tokenizer, texts, environment.tools)
    assert max(Z.arrays["turn_episode"].tolist().count(b) for b in range(4)) == 2
    assert "<|im_start|>assistant" in tokenizer.decode(episode(Z, 0))
    module = build_module(model)
    for b in range(4):
        # bfloat16 rounds a logit of 20 to 1/8
        assert episode(Z, b, "logprobs") == pytest.approx(recomputed(module, Z, b), abs=0.3)


@dataclass(frozen=True)
class Asks(ArithmeticTool):
    """Never content with a first answer."""

    def step(self, state: Any, action: Any) -> tuple[Any, Event]:
        after, event = super().step(state, replace(action, calls=(Call("calculator", {}, ""),)))
        return after, replace(event, done=False)
