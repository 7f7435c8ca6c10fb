"""What `verify` recomputes of a run of pairs: eigenvalues against LAPACK's and known spectra, sums against exact ones, and how
small a gap it can tell from a smaller one."""

from fractions import Fraction

import numpy as np
import pytest
from command_line import call, write_inputs
from pairwise_cases import dense_targets, random_problem
from scipy import sparse

from dkl.errors import StoreError
from dkl.estimators.pairwise.store import load_problem
from dkl.runs.pairwise import verify
from dkl.stores.run import RunStore


def test_it_is_that_of_lapack(rng, monkeypatch):
    monkeypatch.setattr(verify, "DENSE", 0)
    for n in (1, 2, 60, 300):
        laplacian = random_problem(rng, n)[0]
        matrix = laplacian - sparse.diags_array(10.0 * rng.random(n) ** 8)
        exact = np.linalg.eigvalsh(matrix.toarray())
        assert verify.smallest_eigenvalue(matrix) == pytest.approx(exact[0], abs=1e-9 * np.abs(exact).max())


@pytest.mark.parametrize("spread", [1e-5, 1e-7])
def test_a_cluster_at_zero_takes_some_thousand_products(rng, monkeypatch, spread):
    """34 eigenvalues about 0, as duplicates leave them, below a quasi-continuum; Lanczos does not know that S is diagonal."""
    values = np.concatenate([spread * rng.standard_normal(34), np.geomspace(1e-2, 400.0, 1566)])
    products, given = [], sparse.csr_array.__matmul__
    monkeypatch.setattr(sparse.csr_array, "__matmul__", lambda a, b: products.append(1) or given(a, b))
    found = verify.smallest_eigenvalue(sparse.diags_array(values, format="csr"))
    assert len(products) < 30_000
    assert abs(found - values.min()) <= verify.RESIDUAL * 400


def test_spectra_of_one_number_are_found_at_once():
    assert verify.smallest_eigenvalue(sparse.eye_array(1600, format="csr")) == pytest.approx(1.0, rel=1e-12)
    assert verify.smallest_eigenvalue(sparse.csr_array((1600, 1600))) == 0.0


@pytest.fixture(scope="module")
def small_gap(tmp_path_factory):
    """A run whose gap of some 1e-8 is proven with a lift, and no less is: its optimum with a little noise on it."""
    folder = tmp_path_factory.mktemp("small_gap")
    write_inputs(folder)
    with np.load(folder / "X.npz") as held:
        X = held["X"] + np.random.default_rng(1).standard_normal((60, 6))
    np.savez(folder / "X.npz", X=X)
    files = ("--data", folder / "X.npz", "--pairs", folder / "pairs.csv", "--out", folder / "run.zarr")
    answer = call("fit", "pairwise", "--no-picture", *files, "--solver", "factored", "--target-gap", "1e-9")
    assert answer.code == 0, answer.err
    run = RunStore.open(folder / "run.zarr")
    problem = load_problem(run, 100.0).factored(1)
    factor = np.asarray(run.factor()[...])
    factor *= 1 + 1e-11 * np.random.default_rng(0).standard_normal(factor.shape)
    found, _ = problem.certify(problem.at(problem.padded(factor)), 1e-7, 0)
    report = run.report() | {"certificate": found.as_dict()}
    run.write_factor(factor)
    run.write_report(report, found.lift, found.pair_lift)
    assert run.lift().any() and run.pair_lift().any() and 1e-10 < found.relative_gap <= 1e-7
    return run


def disputed(run):
    return [one.name for one in verify.claims(run, 10**9) if not one.agrees]


def test_a_proven_gap_of_1e_9_is_told_from_a_smaller_one(small_gap, monkeypatch):
    assert disputed(small_gap) == []
    for one in verify.claims(small_gap, 10**9):
        if one.name == "relative_gap":
            assert one.allowed < 2e-10
    report = small_gap.report()
    false = report["certificate"] | {name: 0.1 * report["certificate"][name] for name in ("gap", "relative_gap")}
    monkeypatch.setattr(RunStore, "report", lambda self: report | {"certificate": false})
    assert disputed(small_gap) == ["gap", "relative_gap"]


def test_no_bit_depends_on_how_much_memory_there_is(small_gap):
    """As many columns of the factor are read at a time as fit: one, some, or all of them."""
    n, rank = small_gap.factor().shape
    first, *others = ([*verify.claims(small_gap, 8 * n * columns)] for columns in (0, rank // 2, rank + verify.VECTORS))
    assert rank > 2 and others == [first, first]


def test_what_is_on_the_pairs_is_a_part_of_the_proof(small_gap, monkeypatch):
    """Without it, or with it on other pairs, S + M is not psd, or what it costs is more: the report's gap is disputed."""
    given = small_gap.pair_lift()
    for other in (np.zeros(0), given[::-1], 1.01 * given):
        monkeypatch.setattr(RunStore, "pair_lift", lambda self, other=other: other)
        assert set(disputed(small_gap)) & {"gap", "min_eigenvalue"}


@pytest.mark.parametrize("name", ["lift", "pair_lift"])
def test_a_lift_that_is_none_is_refused(small_gap, monkeypatch, name):
    given = getattr(small_gap, name)()
    for other in (given[1:], np.append(given, 0.0), np.where(np.arange(given.size) == 3, np.nan, given)):
        monkeypatch.setattr(RunStore, name, lambda self, other=other: other)
        with pytest.raises(StoreError, match="not a number for each pattern and each pair"):
            verify.recompute(small_gap, 100.0, 10**9)


def test_a_lift_of_the_diagonal_alone_is_verified(small_gap):
    """As runs of earlier versions have it: D >= 0, and `min_eigenvalue` of S itself."""
    report, lift, pairs = small_gap.report(), small_gap.lift(), small_gap.pair_lift()
    laplacian, n = load_problem(small_gap, 100.0).laplacian, lift.size
    factor = np.asarray(small_gap.factor()[...])
    must, cannot = small_gap.read_pairs()
    target, mask = dense_targets(n, must, cannot)
    S = laplacian.toarray() + 100.0 * np.where(mask, factor @ factor.T - target, 0.0)
    lowest = np.linalg.eigvalsh(S)[0]
    D = np.full(n, max(-lowest, 0.0))
    gap = max(np.sum(S * (factor @ factor.T)), 0) + np.sum(D * np.sum(factor**2, axis=1)) + D @ D / 200.0
    told = {"gap": gap, "relative_gap": gap / report["certificate"]["objective"], "min_eigenvalue": lowest}
    try:
        small_gap.write_report(report | {"certificate": report["certificate"] | told}, D)
        assert not (small_gap.path / "pair_lift").exists() and disputed(small_gap) == []
    finally:
        small_gap.write_report(report, lift, pairs)
    assert disputed(small_gap) == []


@pytest.mark.parametrize("gamma", ["1e-2", "1e4"])
def test_admms_own_sums_are_off_by_rounding_alone(small_gap, tmp_path, gamma):
    """Its report has tr(KL) as a difference of numbers of the size of gamma n."""
    folder = small_gap.path.parent
    files = ("--data", folder / "X.npz", "--pairs", folder / "pairs.csv", "--out", tmp_path / "run.zarr")
    ways = ("--solver", "admm", "--target-gap", "none", "--max-iter", "60", "--gamma", gamma)
    assert call("fit", "pairwise", "--no-picture", *files, *ways).code in (0, 3)
    assert disputed(RunStore.open(tmp_path / "run.zarr")) == []


@pytest.mark.parametrize("gamma", [1e-3, 1.0, 1e6])
@pytest.mark.parametrize("spread", [0, 2])
def test_rounding_is_bounded_and_not_by_much(rng, gamma, spread):
    """f and <S, K> of a random factor, in rational numbers; weights of 10^-spread to 10^spread."""
    n, rank = 12, 3
    laplacian, must, cannot = random_problem(rng, n)
    target, mask = dense_targets(n, must, cannot, 10.0 ** rng.uniform(-spread, spread, len(must) + len(cannot)))
    v = rng.standard_normal((n, rank)) / np.sqrt(rank)
    rows, columns = (np.concatenate([np.arange(n), part]) for part in np.nonzero(mask * (1 - np.eye(n))))
    entries = (v[rows] * v[columns]).sum(axis=1)
    difference, weights = entries - target[rows, columns], mask[rows, columns]
    pull = weights * difference
    smooth = float(np.sum(v * (laplacian @ v)))
    found = {
        "objective": smooth + gamma / 2 * float(pull @ difference),
        "inner_product": smooth + gamma * float(pull @ entries),
    }
    exact_v = [[Fraction(float(x)) for x in row] for row in v]
    K = [[sum((a * b for a, b in zip(p, q, strict=True)), Fraction()) for q in exact_v] for p in exact_v]
    L, g = laplacian.toarray(), Fraction(gamma)
    trace = sum((Fraction(float(L[i, j])) * K[i][j] for i in range(n) for j in range(n)), Fraction())
    W = {key: Fraction(float(mask[key])) for key in zip(rows.tolist(), columns.tolist(), strict=True)}
    off = {
        (i, j): K[i][j] - Fraction(float(target[i, j])) for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
    }
    exact = {
        "objective": trace + g / 2 * sum(W[key] * d * d for key, d in off.items()),
        "inner_product": trace + g * sum(W[i, j] * d * K[i][j] for (i, j), d in off.items()),
    }
    allowed = verify._roundings(laplacian, rows, columns, entries, difference, weights, gamma, rank)
    for name, value in exact.items():
        assert abs(Fraction(found[name]) - value) <= allowed[name] <= 1e-11 * (1 + gamma * 10**spread) * n
