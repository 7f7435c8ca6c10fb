"""Runs of `LogDetMetricLearner` (TRIN): a Mahalanobis metric from labels, triplets, pairs or constraints. Imports nothing large."""

from dataclasses import replace

from dkl.estimators.logdet.settings import LogDetMetricRunSettings
from dkl.runs.logdet import DECLARATION as OF_KERNELS
from dkl.runs.registry import rows_file

DECLARATION = replace(
    OF_KERNELS,
    task="metric",
    help="Learn a Mahalanobis metric near a given one from labels, triplets, pairs or constraints, at one weight of the loss or along a "
    "path of them.",
    settings=LogDetMetricRunSettings,
    files=(rows_file(), *OF_KERNELS.files[1:]),
    kind="dkl.runs.logdet.metric.kind:MetricRuns",
)
