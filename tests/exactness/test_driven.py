from harness.exactness import driven
from harness.ledger.checks import Finding


def places(lineage):
    return [("main", n) for n in range(-1, 4)]


def test_every_recorded_episode_happens_again(recorded_ledger):
    _, lineage, store = recorded_ledger
    assert list(driven.of_lineage(lineage, store, places(lineage), deep=True)) == []


def test_an_environment_that_answers_otherwise_is_a_finding(recorded_ledger, monkeypatch):
    from harness.environments.vault import Vault

    _, lineage, store = recorded_ledger
    real = Vault._outcome

    def other(self, room, word):
        after, text, reward, done = real(self, room, word)
        return after, text.replace("wrong", "nothing"), reward, done

    monkeypatch.setattr(Vault, "_outcome", other)
    found = list(driven.of_lineage(lineage, store, places(lineage)))
    assert found
    assert all(isinstance(f, Finding) and f.field == "Z driven again" for f in found)
    assert any("'wrong', but the environment gives 'nothing'" in f.actual for f in found)


def test_another_version_of_the_environment_is_not_driven_and_said(recorded_ledger, monkeypatch):
    from harness.environments.vault import Vault

    _, lineage, store = recorded_ledger
    monkeypatch.setattr(Vault, "version", "2")
    (note,) = driven.of_lineage(lineage, store, places(lineage))
    assert note.endswith("was not driven again: its environment is now environments.vault@2")
