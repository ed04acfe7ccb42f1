"""Arithmetic with integer answers, as an expression or as a short story.

    expression = a_1 ∘_1 a_2 … ∘_{k-1} a_k
    a_i ~ Uniform{0, …, 10^digits - 1},   ∘_i ~ Uniform(operators)

all independent, so the law is uniform on the (10^digits)^k · |operators|^(k-1) expressions.
Products bind before sums. The answer is a string, since no JSON number holds every integer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from harness.round import Seed
from harness.tasks.uniform import below

WORDING = "What is {expression}? Answer with a number only."
STORIES = {
    "+": "Ann has {a} apples and gets {b} more. How many has she now? Answer with a number only.",
    "-": "Ann has {a} coins and pays {b}. What is her balance? Answer with a number only.",
    "*": "There are {a} bags with {b} nuts each. How many nuts is that? Answer with a number only.",
}


@dataclass(frozen=True)
class Arithmetic:
    """The uniform law on expressions of a size.

    Degenerate: with `operators` ["+"] and digits 1 there are 100 sums, whose answers are 0 to 18.
    Versions: 1, the first.
    """

    version: ClassVar[str] = "1"
    digits: int = 1
    """Digits of an operand, leading zeros dropped."""
    operators: tuple[str, ...] = ("+", "-", "*")
    terms: int = 2
    form: str = "expression"
    """`expression`, or `story` (two terms)."""
    wording: str = WORDING
    """How an expression is asked for; {expression} is its place."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "operators", tuple(self.operators))
        if not 1 <= self.digits <= 12:
            raise ValueError(f"task.digits is {self.digits}; an operand has 1 to 12 digits")
        if not 2 <= self.terms <= 12:
            raise ValueError(f"task.terms is {self.terms}; an expression has 2 to 12 terms")
        known = all(operator in STORIES for operator in self.operators)
        if not known or not self.operators or len(set(self.operators)) != len(self.operators):
            raise ValueError(
                f"task.operators is {list(self.operators)}; give some of + - *, each once"
            )
        if self.form not in ("expression", "story"):
            raise ValueError(f"task.form is {self.form!r}; it is expression or story")
        if self.form == "story" and self.terms != 2:
            raise ValueError(f"task.terms is {self.terms}; a story has 2 terms")
        if "{expression}" not in self.wording:
            raise ValueError(
                f"task.wording is {self.wording!r}; it must have a place {{expression}}"
            )

    @property
    def size(self) -> int:
        """Problems there are, all equally likely."""
        return 10 ** (self.digits * self.terms) * len(self.operators) ** (self.terms - 1)

    def nth(self, i: int) -> dict[str, Any]:
        """The problem at rank i of the support."""
        operands, operators = [], []
        for _ in range(self.terms):
            i, operand = divmod(i, 10**self.digits)
            operands.append(operand)
        for _ in range(self.terms - 1):
            i, which = divmod(i, len(self.operators))
            operators.append(self.operators[which])
        return self._problem(operands, operators)

    def draw(self, seed: Seed) -> dict[str, Any]:
        return self.nth(below(seed, self.size))

    def support(self) -> Iterator[tuple[dict[str, Any], float]]:
        """Every problem with its probability."""
        return ((self.nth(i), 1 / self.size) for i in range(self.size))

    def probability(self, problem: dict[str, Any]) -> float:
        words = str(problem.get("expression", "")).split(" ")
        operands, operators = words[::2], words[1::2]
        good = (
            len(words) == 2 * self.terms - 1
            and all(x.isascii() and x.isdigit() and len(x) <= self.digits for x in operands)
            and all(operator in self.operators for operator in operators)
        )
        if not good or problem != self._problem([int(x) for x in operands], operators):
            return 0.0
        return 1 / self.size

    def _problem(self, operands: list[int], operators: list[str]) -> dict[str, Any]:
        expression = str(operands[0])
        for operator, operand in zip(operators, operands[1:], strict=True):
            expression += f" {operator} {operand}"
        if self.form == "story":
            text = STORIES[operators[0]].format(a=operands[0], b=operands[1])
        else:
            text = self.wording.replace("{expression}", expression)
        return {
            "messages": [{"role": "user", "content": text}],
            "expression": expression,
            "answer": str(_value(operands, operators)),
        }


def _value(operands: list[int], operators: list[str]) -> int:
    """Products first: a sum of signed products."""
    total, product = 0, operands[0]
    for operator, operand in zip(operators, operands[1:], strict=True):
        if operator == "*":
            product *= operand
        else:
            total, product = total + product, operand if operator == "+" else -operand
    return total + product
