"""`episodes.csv`: one row an episode."""

from __future__ import annotations

from harness.pages.reading import Reading

COLUMNS = (
    "problem", "attempt", "reward", "stop", "turns", "sampled_tokens", "length", "mean_logprob",
    "mean_advantage",
)  # fmt: skip


def table(reading: Reading) -> str:
    """Numbers and names of ours alone, so nothing needs quotes; NaN is spelt nan."""
    rows = zip(
        reading.rewards_B.tolist(), reading.turns_B.tolist(), reading.sampled_B.tolist(),
        reading.lengths_B.tolist(), reading.logprob_B.tolist(), reading.advantage_B.tolist(),
        strict=True,
    )  # fmt: skip
    lines = [",".join(COLUMNS)]
    for b, (reward, turns, sampled, length, logprob, advantage) in enumerate(rows):
        problem, attempt = divmod(b, reading.attempts)
        stop = reading.stop(b).name.lower()
        lines.append(
            f"{problem},{attempt},{reward!r},{stop},{turns},{sampled},{length},"
            f"{logprob:.6g},{advantage:.6g}"
        )
    return "\n".join(lines) + "\n"
