"""What maps need of each other, held before anything runs.

    records(R, M) = ref_logprobs where R has a reference, values where M has a critic
    C:  needs ⊆ records        gives, use
    U:  needs ⊆ records ∪ gives        uses = use

A credit says `needs`, `gives` and `use`, an objective `needs` and `uses`; one that says nothing
needs and gives nothing, and is for a policy gradient.
"""

from __future__ import annotations

from typing import Any

REMEDIES = {
    "ref_logprobs": "the rollout records no reference; give one, rollout/reference=initial",
    "values": "the model has no critic; take a model with model.critic=true",
}


def check_agreement(model: Any, rollout: Any, credit: Any, objective: Any) -> None:
    """Raises ValueError with one sentence where a map lacks what another should have given it."""
    records = set()
    if getattr(rollout, "reference", None) is not None:
        records.add("ref_logprobs")
    if getattr(model, "critic", False):
        records.add("values")
    name = type(credit).__module__.rpartition(".")[2]
    for need in getattr(credit, "needs", ()):
        if need not in records:
            raise ValueError(f"credit {name} needs {need}, but {REMEDIES[need]}")
    use, uses = getattr(credit, "use", "policy"), getattr(objective, "uses", "policy")
    if use != uses:
        raise ValueError(
            f"credit {name} is for {use!r}, but the objective "
            f"{type(objective).__module__.rpartition('.')[2]} learns from {uses!r}; change either"
        )
    lessons = (records & {"ref_logprobs"}) | set(getattr(credit, "gives", ()))
    for need, why in getattr(objective, "needs", {}).items():
        if need not in lessons:
            missing = REMEDIES["ref_logprobs"] if need == "ref_logprobs" else (
                f"credit {name} gives none; take credit=gae or credit=vtrace, or value_coef=0"
            )  # fmt: skip
            raise ValueError(f"update.objective.{why} needs {need}, but {missing}")
    if getattr(credit, "observations", None) == "none":
        raise ValueError(
            "credit.observations is 'none', which reads values at observations, but the rollout "
            "records those of actions alone; it is skip or zero"
        )
