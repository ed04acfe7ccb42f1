from harness.identity import Version
from harness.seeds.antithetic import Antithetic
from harness.seeds.independent import Independent


def test_the_parts_are_those_of_the_product_law():
    for n in range(5):
        assert Antithetic().draw("1", "a", n) == Independent().draw("1", "a", n)


def test_it_claims_episode_marginals_only():
    assert any(claim.startswith("episode marginals only") for claim in Antithetic.claims)
    assert not any(claim.startswith("episode") for claim in Independent.claims)


def test_it_is_another_law():
    assert Version.of(Antithetic()) != Version.of(Independent())
