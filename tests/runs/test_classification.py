"""What any classifier's runs have in common: two-class problems and weights from the labels alone, and predicted labels."""

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_sample_weight

from dkl.errors import InputError
from dkl.estimators.base.classes import checked_labels
from dkl.runs.inputs.files import Files
from dkl.runs.output_files import OutputRequest
from dkl.runs.predictions import Needs
from dkl.runs.registry import targets_file
from dkl.runs.supervised.inputs import ClassInputs
from dkl.runs.supervised.kind import ClassScore, class_predictor
from dkl.solvers.svm.interface import machines


def inputs(tmp_path, y):
    np.savez(tmp_path / "X.npz", X=np.ones((len(y), 2)), y=y)
    return ClassInputs.read(files(tmp_path), None, values=True, is_kernel=False)


def files(tmp_path):
    declared = (targets_file("Labels."),)
    return Files(declared, {"data": tmp_path / "X.npz", "targets": None})


@pytest.mark.parametrize("scheme", ["ovo", "ovr"])
@pytest.mark.parametrize("labels", [[3, 1, 3, 1, 1], ["b", "a", "c", "a", "b", "d"]])
def test_sides_are_the_machines_of_the_solvers(labels, scheme, tmp_path):
    """Made by other code, for `verify`: which class is positive, which rows take part, in which order."""
    found = inputs(tmp_path, np.array(labels))
    wanted = machines(found.numbers, len(found.classes), scheme)
    for (positive, negative), machine in zip(found.sides(scheme), wanted, strict=True):
        assert np.flatnonzero(positive | negative).tolist() == machine.rows.tolist()
        assert np.where(positive[machine.rows], 1.0, -1.0).tolist() == machine.y.tolist()
        first, other = machine.between
        assert set(found.numbers[positive]) == {first}
        assert other is None or set(found.numbers[negative]) == {other}


def test_weights_of_classes(tmp_path):
    found = inputs(tmp_path, np.array(["b", "a", "a", "c", "a"]))
    np.testing.assert_allclose(found.weights("balanced"), compute_sample_weight("balanced", found.targets))
    assert found.weights(None).tolist() == [1.0] * 5


def test_labels_are_checked(tmp_path):
    with pytest.raises(InputError, match=r"y of .*X.npz: all labeled rows are of one class"):
        inputs(tmp_path, np.zeros(4))
    with pytest.raises(InputError, match=r"y of .*X.npz \[2\]: a label is missing"):
        inputs(tmp_path, np.array([0, 1, np.nan]))
    with pytest.raises(InputError, match="Somebody requires y to be passed"):
        checked_labels(None, 3, "Somebody")


class Signs:
    """Two classes by the sign."""

    def values(self, found):
        return found

    def classes(self, found):
        return (found > 0).astype(int)


@pytest.mark.parametrize("decision", [False, True])
def test_labels_or_decision_values_are_predicted_and_counted(decision, tmp_path):
    y = np.array(["no", "yes", "yes", "no"])
    inputs(tmp_path, y)
    values = np.array([-1.0, 2.0, -0.5, -3.0])
    request = OutputRequest(tmp_path / "X.npz", decision=decision)
    needs = Needs(0, lambda rows: 0, 8)
    predictor = class_predictor(np.unique(y), 2, lambda rows, some: values[sorted(some)], Signs(), request, needs)
    found = predictor.blocks(None, {0, 1, 2, 3})
    assert found.tolist() == (values.tolist() if decision else ["no", "yes", "no", "no"])
    assert (predictor.shape, predictor.features(7)) == ((), 2)
    score = predictor.compare(files(tmp_path), 4)
    score.see(found[:3])
    score.see(found[3:])
    assert score.describe() == "  accuracy 0.75, 1 of 4 wrong"
    with pytest.raises(InputError, match="labels of another kind; got text; wanted numbers"):
        ClassScore.of(files(tmp_path), 4, np.array([0, 1]), decision)
