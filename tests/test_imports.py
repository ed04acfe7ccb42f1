"""Who may import whom: read from the sources."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HARNESS = ROOT / "harness"

LEAVES = {"round", "identity", "forms", "kernels"}
FAMILIES = {
    "seeds", "tasks", "environments", "policies", "rollout", "feedback", "credit", "update",
    "accounting",
}  # fmt: skip
# what a family may import beside the leaves and itself: rollout and update share the ranks of a
# round and the trees of prefixes, rollout and feedback the limit of time on code that is not ours,
# update and accounting the counts of a rollout's work
SHARED = {"world", "prefix_tree", "watchdog", "work"}
ALLOWED = {
    "identity": set(),
    "usage": set(),
    "kernels": set(),
    "round": {"identity"},
    "forms": {"identity", "round"},
    "durable": set(),
    "ending": set(),
    "store": {"identity", "round", "forms", "durable"},
    "console": {"identity", "round", "forms"},
    "pages": {"identity", "round", "forms", "kernels"},
    "ledger": {"identity", "round", "store", "forms", "durable", "ending"},
    **dict.fromkeys(FAMILIES, LEAVES | SHARED),
}
MLFLOW = {"ledger", "store"}
LONG = {
    "ranks.py": "starting, joining, following and failing are one protocol, read at one place",
    "runner.py": "the session of a lineage",
    "ledger/lineage.py": "reading and writing a chain: every method needs the others",
    "policies/resident.py": "the engine that decodes, with its cache of keys and values",
    "exactness/divergence.py": "where two records part, map by map",
    "update/engine.py": "one engine of DeepSpeed, its buffers and its states",
    "update/deepspeed.py": "the updater with its docstring",
}
"""Files over 300 lines, and why."""


def sources():
    return [p for p in sorted(HARNESS.rglob("*.py")) if "__pycache__" not in p.parts] + [
        p for p in sorted((ROOT / "kernels").rglob("*.py")) if p.name != "bench.py"
    ]


def part_of(path):
    """The family or module that a file belongs to."""
    where = path.relative_to(ROOT).parts
    return where[0] if where[0] == "kernels" else where[1].removesuffix(".py")


def imports(path):
    """(module, whether it is only for type checkers) of every import in a file."""
    where = path.relative_to(ROOT)
    package = (*(("harness",) if where.parts[0] == "kernels" else ()), *where.parts[:-1])
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield name.name, id(node) in typing_only
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            for name in node.names:
                yield f"{module}.{name.name}", id(node) in typing_only


def own(module):
    """The part of this project that a module name lies in, if it does."""
    names = module.split(".")
    return names[1] if names[0] == "harness" and len(names) > 1 else None


def broken_rules(path):
    """What a file imports and may not."""
    part = part_of(path)
    for module, typing_only in imports(path):
        target, top = own(module), module.split(".")[0]
        inside = part in ALLOWED and target is not None and not typing_only
        if inside and target not in ALLOWED[part] | {part}:
            yield module
        if part in ALLOWED and top in ("hydra", "omegaconf"):
            yield module
        if part in ALLOWED and top == "mlflow" and part not in MLFLOW:
            yield module
        if target in ("verbs", "__main__") and part not in ("verbs", "__main__"):
            yield module
        if top in ("kernels", "conf"):
            yield module


def test_a_file_imports_only_what_its_part_may():
    broken = {str(path.relative_to(ROOT)): [*broken_rules(path)] for path in sources()}
    assert {path: found for path, found in broken.items() if found} == {}


def test_hydra_is_known_only_where_words_become_configurations():
    named = {part_of(p) for p in sources() for m, _ in imports(p) if m.split(".")[0] == "hydra"}
    assert named <= {"compose", "verbs", "exactness"}


def test_a_file_can_be_read_at_one_go():
    lines = {
        str(path.relative_to(HARNESS)): len(path.read_text(encoding="utf-8").splitlines())
        for path in sources() if path.is_relative_to(HARNESS)
        and "kernels" not in path.relative_to(HARNESS).parts
    }  # fmt: skip
    assert {path for path, count in lines.items() if count > 300} <= set(LONG)


def test_the_definition_stays_short_and_stands_on_identity_alone():
    path = HARNESS / "round.py"
    assert len(path.read_text(encoding="utf-8").splitlines()) < 200
    outside = {module.split(".")[0] for module, _ in imports(path)}
    assert outside - {"harness"} <= set(sys.stdlib_module_names) | {"__future__"}


def test_every_configuration_names_a_module_that_is_there():
    for path in (ROOT / "conf").rglob("*.yaml"):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, target = line.strip().partition(": ")
            if name == "_target_":
                names = target.split(".")
                module = names[: next(i for i, n in enumerate(names) if n[0].isupper())]
                assert ROOT.joinpath(*module).with_suffix(".py").is_file(), path


def test_the_light_modules_bring_nothing_heavy():
    code = (
        "import sys, harness.__main__, harness.usage, harness.compose, harness.round, "
        "harness.identity; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not {"torch", "transformers", "mlflow", "deepspeed"} & set(done.stdout.split())
