"""U: clipped policy gradient and its kin in DeepSpeed, then gates.

    (M, s), Γ, ω  →  for each epoch, for each minibatch:  g = ∇ Σ_t w_t·ℓ_t(M);  (M, s) ← AdamW(g)
    d = accept iff every gate passes on the report;  a reject restores (M, s) bit for bit

Weights w_t are normalised once over the whole batch (a minibatch among k takes k·w_t), so a
gradient does not depend on micro-batches beyond rounding. Rows whose every coefficient is zero skip
the LM head, and trees without rows skip the model. Prefixes that a group shares are computed once,
unless the model takes no mask for it: then each episode is computed alone.
The report is a function of the inputs: verdicts, tokens, steps, `prefixes` and the metrics

    loss, grad_norm, policy/clip_fraction (where the objective has bounds), value/loss and
    value/explained_variance of the recorded values (where it has a critic's loss),
    rollout/mismatch (mean |log π_trainer − log π_rollout|), and with `score_after` of M̃:
    policy/kl (k3 against the recorded log-probabilities), policy/entropy, policy/ratio_max.

Ranks each take whole prefix trees, and gradients are summed over them. For every number of ranks
and every ZeRO stage a state has the same identifier, whoever holds it in whatever parts, and loads
to the same bits. (M̃, s̃) itself is not the same: sums of gradients are rounded in another order, so
`ranks` is one of these settings. The same command on as many ranks gives the same bits.

Versions: 1, the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from harness.forms import Lesson
from harness.identity import plain
from harness.prefix_tree import Batch, Tree, batches, forest, idle, share
from harness.round import Decision, Proposal, Seed, State
from harness.update import keys
from harness.update.schedule import Schedule
from harness.update.trial import Trial, judged


@dataclass(frozen=True)
class DeepSpeed:
    """The updater."""

    version: ClassVar[str] = "1"
    objective: Any
    gates: Mapping[str, Any]
    lr: float = 1e-5
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip: float = 1.0
    """Largest norm of the gradient; 0 does not clip."""
    schedule: Schedule = field(default_factory=Schedule)
    epochs: int = 1
    minibatches: int = 1
    """Optimizer steps an epoch; the groups are dealt among them by ω_update."""
    micro_tokens: int = 4096
    """Padded tokens that are forwarded together."""
    share_prefixes: bool = True
    score_after: bool = field(default=True, metadata={"identity": "unless default"})
    """Score Γ under M̃ after the last step, a forward pass: gates of KL and of ratios read it."""
    checkpointing: bool = False
    """Activation checkpointing."""
    threads: int = 1
    deterministic: bool = True
    """Torch's deterministic algorithms."""
    attention: str = "sdpa"
    deepspeed: Mapping[str, Any] = field(default_factory=dict)
    """DeepSpeed's own keys."""
    ranks: int = field(default=1, metadata={"identity": "unless default"})
    """Over which a batch is spread."""
    spill: str | None = field(default=None, metadata={"identity": False})
    """A folder for the copy that undoes a rejected proposal, 12 bytes a parameter; null: memory."""
    resident: Any = field(default=None, metadata={"identity": False}, compare=False)

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatches", "micro_tokens", "threads", "ranks"):
            if getattr(self, name) < 1:
                raise ValueError(f"update.{name} is {getattr(self, name)}; it is at least 1")
        if not self.lr > 0:
            raise ValueError(f"update.lr is {self.lr}; it is a positive number")
        if self.clip < 0 or self.weight_decay < 0:
            raise ValueError(
                f"update.clip is {self.clip} and weight_decay {self.weight_decay}; neither is "
                "negative"
            )
        if not self.gates:
            raise ValueError("update.gates is empty; choose at least one, such as finite or always")
        for name, gate in self.gates.items():
            if not self.score_after and getattr(gate, "scores_after", False):
                raise ValueError(
                    f"update.score_after is false, and update.gates.{name} reads what it finds; "
                    "leave it true, or drop the gate"
                )
        keys.check(self.deepspeed)

    def config(self, dtype: Any) -> dict[str, Any]:
        """DeepSpeed's configuration for a model of this dtype."""
        import torch

        narrow = dtype == torch.bfloat16
        zero = {"stage": 1 if narrow else 0}
        return {
            "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
            "steps_per_print": 10**9, "gradient_clipping": self.clip,
            "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
            "bf16": {"enabled": narrow},
            "zero_optimization": zero, **plain(self.deepspeed, path="update.deepspeed"),
        }  # fmt: skip

    def __call__(self, state: State, G: Lesson, seed: Seed) -> Proposal:
        self.resident.knobs(self.threads, self.deterministic)
        self.objective.check(G)
        world = self.resident.world
        if world.size != self.ranks:
            raise ValueError(
                f"this update is that of {self.ranks} ranks, and {world.size} are running; give "
                f"ranks={self.ranks}"
            )
        self.resident.settle()
        world.call("U", artifacts=(state.model, state.optimizer), value=G, seed=seed.hex)
        engine, state = self._engine(state)
        self.resident.attend(self.attention, "update.attention")
        engine.learner.trees = self.resident.trees
        engine.load(state)
        engine.save()
        run = Training(self, engine, G)
        for epoch in range(self.epochs):
            for part in run.parts(seed.fold("epoch", epoch)):
                run.step(part)
        report = world.say(run.report())
        proposed = engine.propose()
        good = judged(self.gates, report, Trial(engine, state, proposed, seed))
        kept = proposed if good else state
        engine.hold((kept.model.id, kept.optimizer.id))
        return Proposal(Decision.ACCEPT if good else Decision.REJECT, proposed, report)

    def most(self, G: Lesson) -> dict[str, int]:
        """The most that this Γ can cost: what the report will say, or more. Trees are padded to the
        widest of their batch."""
        arrays, objective = G.arrays, self.objective
        live_T = objective.row_mask(G)
        all_T = arrays["is_action"] & (objective.weights(G) != 0)
        trained, scored = (
            len(trees) * max((len(tree.token_ids_L) for tree in trees), default=0)
            for trees in (
                forest(arrays["token_ids"], rows_T, arrays["episode_offsets"], G.meta["attempts"],
                       share=self.share_prefixes)
                for rows_T in (live_T, all_T)
            )
        )  # fmt: skip
        steps = self.epochs * self.minibatches
        passes = self.score_after + objective.scores_old + (steps if objective.passes == 2 else 0)
        return {"tokens": self.epochs * trained, "tokens_scored": passes * scored, "steps": steps}

    def _engine(self, state: State) -> tuple[Any, State]:
        """The engine of these settings, and the state as something that it can load."""
        from harness.identity import canonical, digest, settings
        from harness.update.engine import Engine, copied

        model: Any = state.model
        key = "engine " + digest("engine", canonical([settings(self), model.meta]))
        if key not in self.resident.caches:
            if self.resident.caches:
                # the engine before this one goes, and the module with its hooks
                if any(getattr(a, "spread", False) for a in (state.model, state.optimizer)):
                    raise ValueError(
                        "this state is spread over ranks by an engine of other settings; read it "
                        "from the store"
                    )
                state = copied(state)
                self.resident.drop()
            self.resident.load(state.model)
            head = self.resident.head()
            self.resident.caches[key] = Engine(self.resident, model, head, self)
        return self.resident.caches[key], state


class Training:
    """The steps of one update over one Γ."""

    def __init__(self, settings: DeepSpeed, engine: Any, G: Lesson) -> None:
        from harness.update.value import value_rows

        self.settings, self.engine, self.G = settings, engine, G
        self.weights_T = settings.objective.weights(G)
        self.live_T = settings.objective.row_mask(G)
        self.all_T = G.arrays["is_action"] & (self.weights_T != 0)
        self.temperature = float(G.meta["sampling"]["temperature"]) or 1.0
        self.tokens = self.scored = self.steps = 0
        self.norms: list[float] = []
        self.loss = self.value_loss = 0.0
        self.value = value_rows(settings.objective, G, self.weights_T)
        self.clipped: list[np.ndarray] = []
        self.gaps: list[np.ndarray] = []
        self.bounded = True
        """Whether the objective has bounds that can clip."""
        self.old_T, self.correction_T = G.arrays["logprobs"], None
        if settings.objective.scores_old:
            self.old_T, _ = self.score(self.all_T)
            self.correction_T = settings.objective.correction_weights(G, self.old_T)

    def trees(self, live_T: np.ndarray) -> list[Tree]:
        arrays, meta = self.G.arrays, self.G.meta
        return forest(
            arrays["token_ids"], live_T, arrays["episode_offsets"], meta["attempts"],
            share=self.settings.share_prefixes and self.engine.learner.trees,
        )  # fmt: skip

    @property
    def prefixes(self) -> str:
        """Whether prefixes that episodes share were computed once, and why not."""
        if not self.settings.share_prefixes:
            return "unshared"
        return "shared" if self.engine.learner.trees else "unshared: the model takes no tree's mask"

    def parts(self, seed: Seed) -> list[np.ndarray]:
        """Masks of the rows of each minibatch: whole groups, dealt by the seed."""
        k = self.settings.minibatches
        if k == 1:
            return [self.live_T]
        groups = self.G.meta["problems"]
        order = sorted(range(groups), key=lambda p: seed.fold("group", p).hex)
        offsets, attempts = self.G.arrays["episode_offsets"], self.G.meta["attempts"]
        part_P = np.empty(groups, np.int64)
        part_P[order] = np.arange(groups) * k // groups
        lengths = np.diff(offsets)
        part_T = np.repeat(np.repeat(part_P, attempts), lengths)
        return [self.live_T & (part_T == i) for i in range(k)]

    def batches(self, live_T: np.ndarray) -> list[tuple[Batch, bool]]:
        """This rank's batches, and whether each counts: every rank has the same number of them."""
        world = self.engine.world
        mine = share(self.trees(live_T), world.rank, world.size)
        todo = [(batch, True) for batch in batches(mine, self.settings.micro_tokens)]
        # an uneven share must not leave the other ranks waiting: what idles has no weight
        for _ in range(max(world.tell(len(todo))) - len(todo)):
            todo.append((idle(int(np.argmax(live_T))), False))
        return todo

    def rows(self, batch: Batch, extra: Mapping[str, np.ndarray]) -> dict[str, Any]:
        import torch

        arrays, index = self.G.arrays, batch.row_T
        rows = {"targets_T": arrays["token_ids"].astype(np.int64), **extra}
        if "threshold" in arrays:
            rows["threshold_T"] = arrays["threshold"]
        device = next(self.engine.module.parameters()).device
        return {name: torch.as_tensor(x[index], device=device) for name, x in rows.items()}

    def step(self, live_T: np.ndarray) -> None:
        """One optimizer step on some rows."""
        settings, engine = self.settings, self.engine
        scale = np.float32(settings.minibatches)
        two_pass = settings.objective.passes == 2
        extra: dict[str, np.ndarray] = {}
        if two_pass:
            logp_T, _ = self.score(self.all_T)
            dlogp_T, loss = settings.objective.coefficients(
                self.G, logp_T, old_logprobs_T=self.old_T, correction_T=self.correction_T
            )
            extra["dlogp_T"] = dlogp_T * scale
            if getattr(settings.objective, "entropy_coef", 0.0):
                extra["dentropy_T"] = settings.objective.dentropy(self.G) * scale
            self.loss = loss
            self.told(logp_T, live_T)
        else:
            extra = {"weights_T": self.weights_T * scale, "old_logprobs_T": self.old_T}
            extra["advantages_T"] = self.G.arrays["advantages"]
            if "ref_logprobs" in self.G.arrays:
                extra["ref_logprobs_T"] = self.G.arrays["ref_logprobs"]
            if self.correction_T is not None:
                extra["correction_T"] = self.correction_T
            self.loss = 0.0
        self.value_loss = 0.0
        extra |= {n: a * scale if n == "value_weights_T" else a for n, a in self.value.items()}
        todo = self.batches(live_T)
        if not todo:
            return
        kernel = None if two_pass else settings.objective.kernel()
        critic = None
        if self.value:
            from harness.update.value import ValueLoss

            critic = ValueLoss(settings.objective.value_clip, settings.objective.value_detach)
        nothing = {name: np.zeros_like(array) for name, array in extra.items()}
        for i, (batch, counts) in enumerate(todo):
            rows = self.rows(batch, extra if counts else nothing)
            engine.module.train(settings.checkpointing)
            loss, stats = engine.ds(
                batch, rows, mode="given" if two_pass else "policy", objective=kernel,
                temperature=self.temperature, value=critic,
            )  # fmt: skip
            engine.backward(loss, last=i == len(todo) - 1)
            engine.module.eval()
            if counts:
                self.tokens += batch.tokens
                self.gather(batch, stats, loss, two_pass)
        lr = settings.schedule.at(engine.step_count, settings.lr)
        self.norms.append(engine.step(lr))
        self.steps += 1

    def gather(self, batch: Batch, stats: Mapping[str, Any], loss: Any, two_pass: bool) -> None:
        """Keep what the report says of a batch."""
        critic = float(stats.get("value_loss", 0.0))
        self.value_loss += critic
        if two_pass:
            return
        self.loss += float(loss.detach()) - critic
        # rows that skipped the LM head are told as zeros, and no ratio is 0
        seen = stats["ratio_T"].float().cpu().numpy() != 0
        logp = stats["logp_T"].float().cpu().numpy()[seen]
        if self.steps == 0:
            self.gaps.append(np.abs(logp - self.G.arrays["logprobs"][batch.row_T[seen]]))
        self.clipped.append(stats["clipped_T"].float().cpu().numpy()[seen])

    def told(self, logp_T: np.ndarray, live_T: np.ndarray) -> None:
        """Keep what the report says of rows whose log-probabilities were needed first."""
        if self.steps == 0:
            self.gaps.append(np.abs(logp_T - self.G.arrays["logprobs"])[self.all_T])
        clipped_T = self.settings.objective.clipped(
            self.G, logp_T, old_logprobs_T=self.old_T, correction_T=self.correction_T
        )
        if clipped_T is None:
            self.bounded = False
        else:
            self.clipped.append(clipped_T[live_T])

    def score(self, live_T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """logp_T and entropy_T of rows under the weights as they are; 0 elsewhere."""
        import torch

        logp_T = np.zeros(len(live_T), np.float32)
        entropy_T = np.zeros(len(live_T), np.float32)
        own_T = np.zeros(len(live_T), bool)
        with torch.no_grad():
            for batch, counts in self.batches(live_T):
                _, stats = self.engine.ds(
                    batch, self.rows(batch, {}), mode="score", temperature=self.temperature
                )
                if counts:
                    own_T[batch.row_T] = True
                    logp_T[batch.row_T] = stats["logp_T"].float().cpu().numpy()
                    entropy_T[batch.row_T] = stats["entropy_T"].float().cpu().numpy()
                    self.scored += batch.tokens
        joined = self.engine.world.joined
        return joined(logp_T, own_T), joined(entropy_T, own_T)

    def report(self) -> dict[str, Any]:
        """Work done and metrics, after the last step."""
        after = self.after() if self.settings.score_after else {}
        clipped, gaps = _joined(self.clipped), _joined(self.gaps)
        own = [self.tokens, self.scored, self.loss, total(clipped), len(clipped), total(gaps),
               len(gaps), self.value_loss]  # fmt: skip
        told = self.engine.world.tell(own)
        tokens, scored, loss, *sums, value = map(sum, zip(*told, strict=True))
        metrics = {
            # with two passes each rank knows the whole loss
            "loss": (self.loss if self.settings.objective.passes == 2 else loss) + value,
            "grad_norm": max(self.norms, default=0.0),
            **after,
            "rollout/mismatch": sums[2] / max(sums[3], 1),
            "update/lr": self.settings.schedule.at(
                max(self.engine.step_count - 1, 0), self.settings.lr
            ),
        }
        if self.bounded:
            metrics["policy/clip_fraction"] = sums[0] / max(sums[1], 1)
        if self.value:
            from harness.update.value import explained

            metrics["value/loss"] = value / self.settings.objective.value_coef
            metrics["value/explained_variance"] = explained(self.G, self.all_T)
        return {
            "steps": self.steps, "tokens": tokens, "tokens_scored": scored,
            "rows": int(self.live_T.sum()), "metrics": metrics, "prefixes": self.prefixes,
        }  # fmt: skip

    def after(self) -> dict[str, float]:
        """Metrics of M̃ on the rows of Γ."""
        after_T, entropy_T = self.score(self.all_T)
        moved = after_T[self.all_T].astype(np.float64) - self.G.arrays["logprobs"][self.all_T]
        held = np.clip(moved, -20, 20)
        ratio = np.exp(held)
        return {
            "policy/kl": mean(ratio - 1 - held),
            "policy/entropy": mean(entropy_T[self.all_T]),
            "policy/ratio_max": float(np.max(ratio, initial=1.0)),
        }


def total(values: np.ndarray) -> float:
    return float(np.sum(values, dtype=np.float64))


def mean(values: np.ndarray) -> float:
    return float(np.mean(values, dtype=np.float64)) if len(values) else 0.0


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate(parts) if parts else np.empty(0)
