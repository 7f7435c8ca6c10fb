"""Errors: cheap to import, and whole after a trip between processes."""

import pickle
import subprocess
import sys

import pytest
from sklearn.exceptions import ConvergenceWarning

from dkl import errors


def test_importing_errors_does_not_import_sklearn():
    program = "import sys, dkl.errors; sys.exit(any(name.split('.')[0] == 'sklearn' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_the_convergence_warning_is_that_of_sklearn():
    assert errors.ConvergenceWarning is ConvergenceWarning
    with pytest.raises(AttributeError, match="no attribute 'ConvergedWarning'"):
        _ = errors.ConvergedWarning


def test_a_pickled_error_keeps_its_parts():
    parts = {"where": "X", "got": 1, "wanted": 2, "remedy": "give 2"}
    error = pickle.loads(pickle.dumps(errors.MemoryBudgetError("too small", **parts)))
    assert type(error) is errors.MemoryBudgetError and str(error) == "X: too small; got 1; wanted 2; give 2"
    assert {name: getattr(error, name) for name in parts} == parts
