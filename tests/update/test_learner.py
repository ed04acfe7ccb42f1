from itertools import pairwise

import numpy as np
import pytest
import torch

from harness.policies.model import build_module, load_tokenizer, read_folder
from harness.policies.resident import Resident, head_of
from harness.prefix_tree import attention_mask, batches, forest
from harness.round import Seed
from harness.update.learner import Learner
from harness.update.objectives.ppo import PPO

SEED = Seed("5" * 32)
FAMILIES = [{}, {"temperature": 0.7, "top_p": 0.8}, {"top_k": 5, "min_p": 0.02}]


def trainable(model):
    own = {name: tensor.clone() for name, tensor in model.tensors.items()}
    return build_module(model.with_tensors(own)).requires_grad_(True)


def rows_of(G, index, objective):
    arrays = {
        "targets_T": G.arrays["token_ids"].astype(np.int64),
        "weights_T": objective.weights(G), "old_logprobs_T": G.arrays["logprobs"],
        "advantages_T": G.arrays["advantages"],
    }  # fmt: skip
    if "threshold" in G.arrays:
        arrays["threshold_T"] = G.arrays["threshold"]
    return {name: torch.from_numpy(array[index].copy()) for name, array in arrays.items()}


def gradient(model, G, *, share=True, budget=4096, live_T=None, attention="sdpa"):
    """Loss and gradient by name of a whole lesson."""
    module, objective = trainable(model), PPO()
    module.set_attn_implementation(attention)
    learner = Learner(module, head_of(module))
    live_T = objective.row_mask(G) if live_T is None else live_T
    offsets, attempts = G.arrays["episode_offsets"], G.meta["attempts"]
    trees = forest(G.arrays["token_ids"], live_T, offsets, attempts, share=share)
    total = 0.0
    for batch in batches(trees, budget):
        loss, _ = learner(
            batch, rows_of(G, batch.row_T, objective), mode="policy",
            objective=objective.kernel(), temperature=G.meta["sampling"]["temperature"],
        )  # fmt: skip
        loss.backward()
        total += float(loss.detach())
    return total, {name: p.grad for name, p in module.named_parameters()}


def plain(model, G, clip=0.2):
    """The clipped objective by its formula, an episode at a time, with logits of all tokens."""
    module = trainable(model)
    weights = torch.from_numpy(PPO().weights(G))
    offsets, total = G.arrays["episode_offsets"].tolist(), 0.0
    for a, b in pairwise(offsets):
        ids = torch.from_numpy(G.arrays["token_ids"][a:b].astype(np.int64))
        at = torch.from_numpy(np.flatnonzero(G.arrays["is_action"][a:b]))
        x = module(input_ids=ids[None]).logits[0, at - 1] / G.meta["sampling"]["temperature"]
        if "threshold" in G.arrays:
            d = x - x.amax(-1, keepdim=True)
            cut = torch.from_numpy(G.arrays["threshold"][a:b].copy())[at]
            x = x.masked_fill(d < cut[:, None], -torch.inf)
        logp = x.log_softmax(-1).gather(1, ids[at, None])[:, 0]
        ratio = (logp - torch.from_numpy(G.arrays["logprobs"][a:b].copy())[at]).exp()
        A = torch.from_numpy(G.arrays["advantages"][a:b].copy())[at]
        each = torch.maximum(-A * ratio, -A * ratio.clamp(1 - clip, 1 + clip))
        loss = (weights[a:b][at] * each).sum()
        loss.backward()
        total += float(loss.detach())
    return total, {name: p.grad for name, p in module.named_parameters()}


def close(a, b, rtol=2e-5):
    """Losses and gradients equal to rounding, relative to the largest entry of each tensor."""
    assert a[0] == pytest.approx(b[0], rel=1e-4, abs=1e-6)
    assert set(a[1]) == set(b[1])
    for name, expected in b[1].items():
        scale = float(expected.abs().max())
        assert scale > 0, name
        assert float((a[1][name] - expected).abs().max()) <= rtol * scale, name


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_gradients_are_those_of_the_plain_formula(play, family):
    made = play(**family)
    reference = plain(made.model, made.G)
    close(gradient(made.model, made.G), reference)
    close(gradient(made.model, made.G, share=False), reference)


@pytest.mark.parametrize("budget", [1, 40, 100])
def test_any_split_into_micro_batches_gives_the_same_gradient(play, budget):
    made = play()
    close(gradient(made.model, made.G, budget=budget), gradient(made.model, made.G))
    close(gradient(made.model, made.G, budget=budget, share=False), gradient(made.model, made.G))


def test_rows_without_a_coefficient_may_be_skipped(play):
    made = play()
    live_T = PPO().row_mask(made.G)
    assert 0 < live_T.sum() < made.G.arrays["is_action"].sum()
    kept = gradient(made.model, made.G, live_T=made.G.arrays["is_action"])
    close(gradient(made.model, made.G, live_T=live_T), kept)


def test_eager_attention_gives_the_same(play):
    made = play()
    close(gradient(made.model, made.G, attention="eager"), gradient(made.model, made.G))


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_before_the_first_step_log_probabilities_are_the_recorded_ones(play, family):
    made = play(**family)
    for share in (True, False):
        logp_T, entropy_T = scored(made.model, made.G, share)
        mask = made.G.arrays["is_action"]
        assert logp_T[mask] == pytest.approx(made.G.arrays["logprobs"][mask], abs=1e-5)
        assert (entropy_T[mask] >= 0).all()


def scored(model, G, share):
    module = build_module(model)
    learner = Learner(module, head_of(module))
    offsets, attempts = G.arrays["episode_offsets"], G.meta["attempts"]
    found = np.zeros((2, len(G.arrays["token_ids"])), np.float32)
    with torch.no_grad():
        for batch in batches(
            forest(G.arrays["token_ids"], G.arrays["is_action"], offsets, attempts, share=share),
            200,
        ):
            _, stats = learner(
                batch, rows_of(G, batch.row_T, PPO()), mode="score",
                temperature=G.meta["sampling"]["temperature"],
            )  # fmt: skip
            found[0, batch.row_T], found[1, batch.row_T] = stats["logp_T"], stats["entropy_T"]
    return found


def test_a_ratio_beyond_the_clip_has_no_gradient(play):
    made = play()
    lower = made.G.arrays["logprobs"] - 1
    G = made.G.replace({}, logprobs=np.where(made.G.arrays["is_action"], lower, 0).astype("f4"))
    close(gradient(made.model, G), plain(made.model, G))
    positive = G.replace({}, advantages=np.abs(G.arrays["advantages"]))
    _, gradients = gradient(made.model, positive)
    assert all(float(g.abs().max()) == 0 for g in gradients.values())


def test_smollm2_shares_a_prompt_without_changing_a_gradient(smollm2_folder, lesson):
    from harness.forms import Trajectories

    model = read_folder(smollm2_folder, dtype="float32")
    tokenizer = load_tokenizer(model)
    prompt = tokenizer.encode("<|im_start|>user\nWhat is 17 + 4?<|im_end|>\n")
    answers = [tokenizer.encode(text) for text in ("It is 21.", "It is twenty", "I do not know")]
    ids = [[*prompt, *answer] for answer in answers]
    mask = [[False] * len(prompt) + [True] * len(answer) for answer in answers]
    Z = Trajectories(
        {"problems": 1, "attempts": 3, "sampling": {"temperature": 1.0}},
        {
            "token_ids": np.concatenate(ids).astype(np.int32),
            "is_action": np.concatenate(mask),
            "logprobs": np.where(np.concatenate(mask), -2.0, 0.0).astype(np.float32),
            "episode_offsets": np.cumsum([0, *map(len, ids)]),
        },
    )
    G = lesson(Z, np.array([1.0, -1.0, 0.5]))
    shared, apart = gradient(model, G), gradient(model, G, share=False)
    close(shared, apart, rtol=2e-4)


def hidden_by(model, G, attention):
    """Hidden states of the rows, without a gradient."""
    module = build_module(model, attention="eager")
    module.set_attn_implementation(attention)
    offsets, attempts = G.arrays["episode_offsets"], G.meta["attempts"]
    trees = forest(G.arrays["token_ids"], G.arrays["is_action"], offsets, attempts, share=True)
    (batch,) = batches(trees, 4096)
    with torch.no_grad():
        out = module.base_model(
            input_ids=torch.from_numpy(batch.token_ids_KL), use_cache=False,
            position_ids=torch.from_numpy(batch.position_KL),
            attention_mask=attention_mask(batch, attention, module.dtype, "cpu"),
        ).last_hidden_state  # fmt: skip
    return out.reshape(-1, out.shape[-1])[torch.from_numpy(batch.node_R)]


def test_flex_attention_sees_what_the_dense_mask_does(play):
    # torch has no backward of it on the CPU
    made = play()
    dense = hidden_by(made.model, made.G, "sdpa")
    flex = hidden_by(made.model, made.G, "flex_attention")
    assert float((dense - flex).abs().max()) < 1e-5 * float(dense.abs().max())


@pytest.mark.gpu
def test_gradients_of_flex_attention_are_those_of_the_dense_mask(play, update):
    made = play()
    dense = update(made.resident)(made.state, made.G, SEED).state
    own = {n: t.cpu().clone() for n, t in dense.optimizer.tensors.items()}
    flex = update(Resident(), attention="flex_attention")(made.state, made.G, SEED).state
    for name, tensor in flex.optimizer.tensors.items():
        scale = float(own[name].abs().max())
        assert float((tensor.cpu() - own[name]).abs().max()) <= 1e-4 * scale, name
