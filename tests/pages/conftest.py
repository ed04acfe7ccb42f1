"""Records of rounds: a real one of the tiny model in the vault, and made ones of any shape."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from harness.forms import Instance, Lesson, Scores, Trajectories
from harness.identity import Version
from harness.round import Cost, Decision, Proposal, Record, Stamp, State
from harness.seeds.independent import Independent


@dataclass(frozen=True)
class Named:
    id: str


HOSTILE = (
    "</script><script>window.hacked=1</script>",
    '<img src=x onerror="window.hacked=1">',
    '" onmouseover="window.hacked=1" x=\'',
    "--></style></title><svg onload=window.hacked=1>",
    "\x00\x1b[31m\x7f\x85",
    "abc\u202edcba\u2066\u200f",
    "\ud800lone\udfff",
    "\ufffe\ufdd0\u2028\ufeff",
    "| `a` | **b** [c](javascript:window.hacked=1) <b>",
)


def made(problems=2, attempts=2, turns=2, each=2, seed=0, text=None, decision="accept"):
    """A record with `turns` turns of `each` sampled tokens an episode; text: said everywhere."""
    rng, B = np.random.default_rng(seed), problems * attempts
    length = 3 + turns * (each + 1)
    action = np.tile([False] * 3 + ([True] * each + [False]) * turns, B)
    starts = (np.arange(B)[:, None] * length + 3 + np.arange(turns) * (each + 1)).ravel()
    # what has no UTF-8 has no identifier either, so no record holds it: tokens and names may
    said = "hi" if text is None else text.encode(errors="replace").decode()
    turn = {
        "action": {"text": said, "calls": []},
        "event": {
            "messages": [{"role": "user", "content": said}], "reward": 0.5, "done": False,
            "stop": None, "key": said,
            "calls": [{"name": said, "arguments": {said: said}, "result": said},
                      {"name": said, "arguments": None, "error": said}],
        },
    }  # fmt: skip
    meta = {"problems": problems, "attempts": attempts,
            "sampling": {"temperature": 1.0, "top_k": 0}}  # fmt: skip
    tokens = rng.integers(0, 50, B * length).astype(np.int32)
    tokens.reshape(B, length)[:, :3] = 7
    shared = {
        "token_ids": tokens,
        "is_action": action, "episode_offsets": np.arange(B + 1) * length,
        "logprobs": np.where(action, -rng.random(B * length), 0).astype(np.float32),
    }  # fmt: skip
    stop = rng.integers(0, 7, B).astype(np.uint8)
    Z = Trajectories(
        meta | {"episodes": [{"turns": [turn] * turns}] * B, "exogenous": []},
        shared | {
            "stop": stop, "turn_start": starts, "turn_end": starts + each,
            "turn_episode": np.repeat(np.arange(B), turns).astype(np.int32),
            "turn_rewards": rng.random(B * turns) - 0.5,
        },
    )  # fmt: skip
    advantages = np.where(action, rng.normal(size=B * length), 0).astype(np.float32)
    version = Version.of(Independent())
    state = State(Named("sha256:" + "a" * 64), Named("sha256:" + "b" * 64))
    report = {
        "gates": [{"name": said, "passed": decision == "accept", "numbers": {said: 0.1}}],
        "metrics": {"policy/kl": 0.01, "loss": float("nan"), said: 1.0}, "steps": 1, "tokens": 9,
    }  # fmt: skip
    problem = {"messages": [{"role": "user", "content": said}], "answer": said}
    return Record(
        3, version, Instance({"problems": [problem] * problems}),
        Stamp(state.model.id, "sha256:" + "c" * 64), version, Z,
        Scores({"components": []}, {"rewards": rng.integers(0, 4, B) / 3}),
        Lesson(meta, shared | {"advantages": advantages}),
        Proposal(Decision(decision), state, report), state, state,
        Independent().draw("1", "main", 3), dict.fromkeys("SRFCUA", replace(version, name=said)),
        Cost({"tokens/sampled": 12}, {"seconds/R": 0.5}),
    )  # fmt: skip


@pytest.fixture(scope="session")
def vault():
    """A real round of the tiny model, and the text of its tokens."""
    from harness.credit.group import Group
    from harness.environments.vault import Vault
    from harness.feedback.verified import Verified
    from harness.policies.inference import Inference
    from harness.policies.model import load_tokenizer
    from harness.policies.resident import Resident
    from harness.policies.serializers.plain import Plain
    from harness.policies.tiny import Tiny
    from harness.rollout.sampled import Sampled
    from harness.tasks.product import Product
    from harness.tasks.vault import Vault as Codes

    model, w = Tiny().initial(), Independent().draw("1", "main", 0)
    tokenizer = load_tokenizer(model)
    limits = {"max_turn_tokens": 1, "max_turns": 16, "max_episode_tokens": 16, "context": 128}
    inference = Inference(Plain(), prefill_rows=64, **limits).bind(tokenizer)
    X = Product(Codes(), 4)(w.task)
    Z = Sampled(4)(Resident().policy(model, inference), Vault(turns=4))(X, w.roll)
    F = Verified()(X, Z, w.feed)
    record = replace(made(), X=X, Z=Z, F=F, G=Group()(X, Z, F, w.credit))
    return record, lambda token: tokenizer.decode([token])
