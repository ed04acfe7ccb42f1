import numpy as np
import pytest
from scipy import stats

from harness.laws.statistics import Check, exact, g_test, holm, largest, noncentrality, z_test

DIE = dict.fromkeys(range(6), 1 / 6)


def rolled(size, seed, law=DIE):
    counts = np.random.default_rng(seed).multinomial(size, list(law.values()))
    return dict(zip(law, counts.tolist(), strict=True))


def test_the_g_test_is_scipys_but_for_the_correction():
    seen = rolled(6000, 1)
    check = g_test("S", "die", seen, DIE)
    expected = stats.power_divergence(list(seen.values()), lambda_="log-likelihood")
    assert check.p == pytest.approx(expected.pvalue, abs=1e-3)
    assert check.size == 6000


def test_a_true_law_is_rejected_at_its_level_and_no_more():
    small = dict(enumerate(np.random.default_rng(0).dirichlet(np.ones(60))))
    p = np.array([g_test("S", "x", rolled(800, s, small), small).p for s in range(2000)])
    for level in (0.1, 0.01):
        assert stats.binomtest(int((p <= level).sum()), len(p), level).pvalue > 1e-3
    assert stats.kstest(p, "uniform").pvalue > 1e-3


def test_what_a_test_says_it_finds_it_finds():
    """At the non-centrality that is said, nine of ten are rejected."""
    size, level = 5000, 1e-2
    divergence = noncentrality(5, level) / (2 * size)
    # a die loaded on one face by that divergence
    loads = np.linspace(0, 0.1, 2001)
    laws = [[1 / 6 + d, *[(5 / 6 - d) / 5] * 5] for d in loads]
    gaps = [sum(q * np.log(q * 6) for q in law) for law in laws]
    law = laws[int(np.argmin(np.abs(np.array(gaps) - divergence)))]
    loaded = dict(zip(range(6), law, strict=True))
    found = sum(g_test("S", "x", rolled(size, s, loaded), DIE).p <= level for s in range(1000))
    assert 870 <= found <= 930


def test_a_count_where_there_is_no_probability_rejects_for_certain():
    assert g_test("S", "x", {0: 99, 7: 1}, DIE).p == 0


def test_small_cells_are_pooled_as_they_are_told():
    law = {("a", i): 0.5 / 100 for i in range(100)} | {("b", i): 0.5 / 100 for i in range(100)}
    pools = {cell: cell[0] for cell in law}
    seen = {cell: 1 for cell in law if cell[0] == "a"}
    together = g_test("S", "x", seen, law)
    assert together.p == 1
    assert g_test("S", "x", seen, law, pools).p < 1e-10


def test_holm_goes_on_as_long_as_it_rejects():
    checks = [Check("", "", "", 1, p) for p in (0.04, 0.001, 0.02, 0.9)]
    assert holm(checks, 0.05) == [False, True, False, False]
    assert holm(checks, 0.12) == [True, True, True, False]
    assert holm([exact("", "", True, 1, ""), exact("", "", False, 1, "")], 0.001) == [False, True]


def test_p_values_of_normal_statistics():
    assert z_test("", "", 1.96, 1).p == pytest.approx(0.05, abs=1e-3)
    assert largest("", "", np.array([0.1, -4.0]), 1).p == pytest.approx(2 * 6.33e-5, rel=1e-2)
