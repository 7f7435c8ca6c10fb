"""What is advised where a fit has not converged: nothing that is so already."""

import pytest

from dkl.estimators.kpca.fit import REMEDIES as OF_KPCA
from dkl.estimators.pairwise.stages import FACTORED_REMEDIES as OF_FACTORS
from dkl.estimators.pairwise.stages import REMEDIES as OF_PAIRS
from dkl.estimators.regression.fit import REMEDIES as OF_REGRESSION
from dkl.estimators.svm.fit import REMEDIES as OF_SVC
from dkl.runs.registry import TASKS, declaration


@pytest.mark.parametrize(
    "remedies",
    [OF_KPCA, OF_FACTORS, OF_PAIRS, OF_REGRESSION, OF_SVC, *(declaration(task).remedies for task in TASKS)],
    ids=["kpca", "factored", "pairs", "regression", "classifier", *TASKS],
)
def test_double_precision_is_advised_only_where_it_is_not_the_default_s(remedies):
    """float64 is the default of all: that it helps was said first of a regression that already had it."""
    for outcome, advice in remedies.items():
        assert advice.count("float64") == advice.count("float64 if it is not") + advice.count(
            "'float64' if it is not"
        ), outcome
        assert "float64" not in advice.partition(":")[2].partition(",")[0].partition(" or ")[0], (
            outcome
        )  # other ways come first
