"""A whole GRPO round here against a step of TRL's `GRPOTrainer`, in turn, in a process each.

    python sweeps/peers/grpo.py PEER DTYPE SENTENCES STEPS [OUT.csv] [KEY=VALUE …]

PEER is the Python of an environment with TRL; DTYPE is bf16 (products in bfloat16, masters in
float32) or fp32; SENTENCES lengthen the prompt: 0 gives about 45 tokens, 28 about 380. Both sides
see the same prompts in the same order, 2 a step, with 8 completions of at most 48 tokens each, the
same reward, AdamW and the same loss (token mean over the batch, clipped at 0.2, no KL, advantages
by group). A step is everything: here the record and its evidence too. The first is not counted.
The reward tells any two texts apart, so that every group teaches and neither side has less to do.

SmolLM2-135M; `MODEL` names another folder. Prints a JSON line a side and the ratios of medians.
"""

from __future__ import annotations

import csv
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

P, G, TOKENS, THREADS, LR, BETAS = 2, 8, 48, 2, 1e-5, (0.9, 0.999)
SYSTEM = "You can call tools. "
SENTENCE = "The tool named calc takes an expression and returns its value. "
PHASES = ("rollout", "update", "rest")


def reward(completion: str, answer: str) -> float:
    """1 for the answer as the first number, and a little for every letter that is not written."""
    number = re.search(r"-?\d+", completion)
    hit = number is not None and number.group() == answer
    return float(hit) - len(completion) / 1000 - sum(map(ord, completion)) / 1e8


def rows(sentences: int, steps: int) -> list[dict[str, str]]:
    """As many different sums as are asked."""
    start = SYSTEM + SENTENCE * sentences
    pairs = [(a, b) for a in range(1, 10) for b in range(1, 10)]
    return [
        {"prompt": f"{start}What is {a} + {b}? Answer with a number only.", "answer": str(a + b)}
        for a, b in pairs[: P * steps]
    ]


# ---- the two sides: each waits for a line, makes a step, and says what it took


def say(**words: Any) -> None:
    words["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.__stdout__.write(f"@{json.dumps(words)}\n")
    sys.__stdout__.flush()


def wait() -> None:
    sys.stdin.readline()


def ours(folder: Path, dtype: str, steps: int, words: Sequence[str]) -> None:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    from harness.compose import CONF
    from harness.config import build
    from harness.console import View
    from harness.ledger.ledger import Ledger
    from harness.runner import Session

    own = [
        "model=smollm2", "inference=chat", "task=jsonl", f"task.path={folder}/rows.jsonl",
        "sampler=epoch", f"sampler.problems={P}", "seeds=epochs", f"rollout.attempts={G}",
        "environment=prompt", "feedback=function", f"feedback.path={folder}/reward.py:reward",
        f"model.path={model()}", f"model.dtype={'bfloat16' if dtype == 'bf16' else 'float32'}",
        f"inference.max_turn_tokens={TOKENS}", f"inference.max_episode_tokens={TOKENS}",
        f"inference.threads={THREADS}", f"update.threads={THREADS}", f"update.lr={LR}",
        f"update.betas=[{BETAS[0]},{BETAS[1]}]", "credit=group", "update/objective=ppo",
        f"rounds={steps}", "store.snapshot_every=50",
    ]  # fmt: skip
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("config", [*own, *words])
    container: Any = OmegaConf.to_container(cfg, resolve=True)
    os.chdir(folder)
    experiment = build(container, "grpo")
    law, S = experiment.law, experiment.maps.S
    ledger = Ledger.open(f"sqlite:///{folder}/mlflow.db", experiment.ledger["experiment"])
    session = Session.open(experiment, ledger)
    drawn = [law.draw(experiment.root, session.arm, n) for n in range(steps)]
    say(rows=[x["row"] for seeds in drawn for x in S(seeds.task).problems])
    head = session.start()
    state = session.state_at(head)
    view = View("", "main", steps, 0)
    for _ in range(steps):
        wait()
        began = time.monotonic()
        head, state = session.advance(head, state, view)
        seconds = time.monotonic() - began
        sealed, cost = head.document.sealed, head.document.exact["c"]
        spent = {name: sealed["readings"][f"seconds/{name}"] for name in "SRFCUA"}
        say(
            seconds=seconds, rollout=spent["R"], update=spent["U"],
            rest=seconds - spent["R"] - spent["U"], prompt=int(cost["tokens/prompt"]),
            sampled=int(cost["tokens/sampled"]), norm=sealed["metrics"]["grad_norm"],
            loss=sealed["metrics"]["loss"],
        )  # fmt: skip


def theirs(folder: Path, dtype: str, steps: int) -> None:
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.set_num_threads(THREADS)
    spent = dict.fromkeys(PHASES, 0.0)
    told: dict[str, Any] = {}

    class Timed(GRPOTrainer):
        def _generate(self, *args: Any, **words: Any) -> Any:
            began = time.monotonic()
            made = super()._generate(*args, **words)
            spent["rollout"] += time.monotonic() - began
            return made

        def _generate_and_score_completions(self, *args: Any, **words: Any) -> Any:
            began, before = time.monotonic(), spent["rollout"]
            made = super()._generate_and_score_completions(*args, **words)
            spent["rest"] += time.monotonic() - began - (spent["rollout"] - before)
            # as here: a shared prompt counts once
            told["prompt"] = int(made["prompt_mask"].sum()) // G
            told["sampled"] = int(made["completion_mask"].sum())
            return made

    class Turn(TrainerCallback):
        began = 0.0

        def on_step_begin(self, *args: Any, **words: Any) -> None:
            spent.update(dict.fromkeys(PHASES, 0.0))
            wait()
            self.began = time.monotonic()

        def on_step_end(self, *args: Any, **words: Any) -> None:
            told["seconds"] = time.monotonic() - self.began
            told.update(spent)
            told["update"] = told["seconds"] - spent["rollout"] - spent["rest"]

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in logs:
                say(**told, norm=float(logs["grad_norm"]), loss=float(logs["loss"]))

    def rewards(completions: Any, answer: Any, **_: Any) -> list[float]:
        return [reward(c[0]["content"], a) for c, a in zip(completions, answer, strict=True)]

    arguments = GRPOConfig(
        output_dir=str(folder / "trl"), per_device_train_batch_size=P * G, num_generations=G,
        max_completion_length=TOKENS, max_steps=steps, use_cpu=True, bf16=dtype == "bf16",
        fp16=False, logging_steps=1, save_strategy="no", report_to=[], learning_rate=LR,
        adam_beta1=BETAS[0], adam_beta2=BETAS[1], lr_scheduler_type="constant",
        gradient_checkpointing=False, shuffle_dataset=False, disable_tqdm=True,
    )  # fmt: skip
    expected = {"beta": 0.0, "loss_type": "dapo", "scale_rewards": "group", "epsilon": 0.2,
                "temperature": 1.0, "num_iterations": 1, "steps_per_generation": 1,
                "gradient_accumulation_steps": 1, "max_grad_norm": 1.0, "weight_decay": 0.0,
                "optim": "adamw_torch_fused"}  # fmt: skip
    found = {name: getattr(arguments, name) for name in expected}
    found["optim"] = getattr(found["optim"], "value", found["optim"])
    assert found == expected, found
    lines = (folder / "ordered.jsonl").read_text().splitlines()
    data = [json.loads(line) for line in lines]
    for row in data:
        row["prompt"] = [{"role": "user", "content": row["prompt"]}]
    trainer = Timed(
        model=AutoModelForCausalLM.from_pretrained(model(), dtype=torch.float32),
        reward_funcs=rewards, args=arguments, train_dataset=Dataset.from_list(data),
        processing_class=AutoTokenizer.from_pretrained(model()), callbacks=[Turn()],
    )  # fmt: skip
    say(ready=True)
    trainer.train()


def model() -> str:
    cache = Path("~/.cache/harness/SmolLM2-135M-Instruct").expanduser()
    return os.environ.get("MODEL") or str(cache)


# ---- driving them


class Side:
    """A process that makes one step at a time."""

    def __init__(self, python: str, *words: str) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "PYTHONSAFEPATH": "1"}
        self.process = subprocess.Popen(
            [python, __file__, *words], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self.steps: list[dict[str, Any]] = []

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("@"):
                return json.loads(line[1:])
        raise RuntimeError(f"a side ended with {self.process.wait()}")

    def step(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.steps.append(self.hear())
        print(json.dumps(self.steps[-1]), file=sys.stderr, flush=True)


def main(peer: str, dtype: str, sentences: str, steps: str, *rest: str) -> None:
    out = [word for word in rest if word.endswith(".csv")]
    words = [word for word in rest if word not in out]
    count = int(steps)
    with tempfile.TemporaryDirectory(prefix="grpo-") as scratch:
        folder = Path(scratch)
        made = rows(int(sentences), count)
        write(folder / "rows.jsonl", made)
        (folder / "reward.py").write_text(Path(__file__).read_text())
        here = Side(sys.executable, "ours", scratch, dtype, steps, *words)
        write(folder / "ordered.jsonl", [made[i] for i in here.hear()["rows"]])
        there = Side(peer, "theirs", scratch, dtype, steps)
        there.hear()
        for _ in range(count):
            there.step()
            here.step()
    found = compared(here.steps, there.steps)
    for row in found:
        print(json.dumps(row))
    for path in out:
        settings = f"{dtype}; {P} prompts of {here.steps[0]['prompt'] // P} tokens x {G}"
        note = [settings, count - 1, commit(), machine(peer)]
        with open(path, "a", newline="") as file:
            csv.writer(file).writerows([*row.values(), *note] for row in found)


def write(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def compared(here: Sequence[Any], there: Sequence[Any]) -> list[dict[str, Any]]:
    """Medians of both sides and their ratio, by figure."""

    def numbers() -> Iterator[tuple[str, float, float]]:
        for name in ("seconds", *PHASES, "prompt", "sampled", "norm"):
            yield (name, *(statistics.median(s[name] for s in side[1:]) for side in (here, there)))
        yield "peak_bytes", here[-1]["peak_bytes"], there[-1]["peak_bytes"]

    return [
        {"figure": name, "harness": round(a, 4), "trl": round(b, 4),
         "trl_over_harness": round(b / a, 3) if a else ""}
        for name, a, b in numbers()
    ]  # fmt: skip


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return found.stdout.strip()


def machine(peer: str) -> str:
    import torch

    code = "import trl, transformers; print(f'TRL {trl.__version__}, transformers '"
    code += "f'{transformers.__version__}')"
    versions = subprocess.run([peer, "-c", code], capture_output=True, text=True).stdout.strip()
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{os.cpu_count()} cores {capability}; torch {torch.__version__}; {versions}"


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    if role == "ours":
        ours(Path(arguments[0]), arguments[1], int(arguments[2]), arguments[3:])
    elif role == "theirs":
        theirs(Path(arguments[0]), arguments[1], int(arguments[2]))
    else:
        main(role, *arguments)
