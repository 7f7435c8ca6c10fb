"""Runs in Python: `dkl.open_run`, `dkl.resume` and `dkl.load`, the verbs of the command without its printing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkl.blocks.session import Session
from dkl.blocks.slabs.export import lazy
from dkl.errors import InputError, StoreError
from dkl.estimators.base.progress import watch_for
from dkl.estimators.base.run_arrays import MachineLog, adopt_names
from dkl.runs import clustering, driver, registry
from dkl.runs.inputs.applied_rows import standardized_inputs
from dkl.runs.inputs.files import Lazy
from dkl.runs.registry import Facts
from dkl.runs.report import Comparison, damages, draw_picture, require
from dkl.runs.stored import open_run as open_store
from dkl.runs.stored import settings_of
from dkl.stores.run import RunStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from distributed import Client
    from sklearn.base import BaseEstimator

    from dkl.solvers.watch import Callback
    from dkl.stores.seals import Json

FACTORED = "pairwise, laplacian or mvu"
"""Tasks whose runs have a factor of the learned kernel."""
READ_WHOLE = 64_000_000
"""Bytes of a part of a run up to which all of it is read before it is loaded."""

PathLike = str | os.PathLike[str]


class Run:
    """A run to look at: what `dkl info` prints, as values. It is read again at each call.

    Attributes
    ----------
    path, task, settings, state, is_complete, report, history

    See Also
    --------
    dkl.open_run : What returns it.
    """

    def __init__(self, path: PathLike) -> None:
        """Open the run in a folder or at an address; errors as of `open_run`."""
        self._store = open_store(path)
        self._kind = registry.kind(registry.task_of(self._store))

    def __repr__(self) -> str:
        return f"<run of {self.task} at {self._store.name}: {self.state}>"

    @property
    def path(self) -> Path:
        """Return the run's folder; of a run in an object store its copy, which lasts as long as this process."""
        return self._store.path

    @property
    def task(self) -> str:
        """Return the task: "pairwise", "regression", "svc", "logdet", "metric", "laplacian" or "mvu"."""
        return self._kind.declaration.task

    @property
    def settings(self) -> Json:
        """Return the settings that the run was started with."""
        return dict(settings_of(self._store, {}).as_dict())

    @property
    def state(self) -> str:
        """Return the state: "complete, solved", "resumable at iteration 40", "damaged: ..." for lost parts."""
        damage = self._damage()
        return self._facts().state if damage is None else f"damaged: {damage}"

    @property
    def is_complete(self) -> bool:
        """Return whether the run has a result, of which all files are there."""
        return bool(self._store.is_complete) and self._damage() is None

    @property
    def report(self) -> Json:
        """Return outcome, certificate, seconds, plan and settings of a complete run; {} before."""
        return dict(self._store.report())

    @property
    def history(self) -> list[Json]:
        """Return a row for each iteration, or check of the solver, in order."""
        return list(self._facts().details.get("history", []))

    @property
    def factor(self) -> Any:
        """Return the factor V (n, r) of the learned kernel K = V V' as a dask array, by the chunks in which it is stored.

        Rows are read when they are computed. Of `mvu` it is the embedding: K's leading columns. Raises StoreError for a run
        without a result, InputError for a learner of another kind, which has no factor.
        """
        require(self._store)
        # Whatever a damaged file raises: a program that catches StoreError must not meet a KeyError.
        with damages(self._store, "run", "."):
            found = self._kind.coordinates(self._store)
        if found is None:
            raise InputError("a run without a factor", where=self._store.name, got=self.task, wanted=FACTORED)
        return lazy(found)

    def kernel(self, rows: Any = slice(None), columns: Any = slice(None)) -> Any:
        """Return the entries K[rows, columns] of the learned kernel, V[rows] V[columns]', as a dask array that is not computed yet.

        Parameters
        ----------
        rows, columns : slices or arrays of row numbers, optional
            By default all n.

        Returns
        -------
        dask array

        Raises
        ------
        StoreError, InputError
            As of `factor`.
        """
        factor = self.factor
        return factor[rows] @ factor[columns].T

    def verify(self, memory_limit: int | None = None) -> list[Comparison]:
        """Return comparisons of the report's numbers with the same recomputed from what is stored.

        `agrees` of each is the verdict. Needs the training data for learners whose result is checked against it.

        Parameters
        ----------
        memory_limit : int or None
            Bytes that the comparison may use.

        Returns
        -------
        list of Comparison

        Raises
        ------
        StoreError
            For a run without a result, and for one that is damaged.
        InputError
            Where the training data is gone, or is not what it was.
        """
        require(self._store)
        self._store.check(whole=True)
        with damages(self._store):
            return list(driver.all_claims(self._kind, self._store, self._inputs(), memory_limit))

    def picture(self, path: PathLike) -> Path:
        """Draw a complete run to a file, with matplotlib, and return the file's path.

        Parameters
        ----------
        path : path
            Its suffix names the kind: .png, .pdf or .svg.

        Returns
        -------
        pathlib.Path

        Raises
        ------
        StoreError
            For a run without a result.
        """
        require(self._store)
        return draw_picture(self._kind, self._store, self._inputs(), Path(path).absolute())

    def load(self) -> Any:
        """Return the fitted estimator, from the folder alone.

        What is loaded is compared byte by byte with what was written; of a factor that stays on disk each chunk is, when it
        is read.

        Returns
        -------
        The learner that was fitted, with its settings and results.

        Raises
        ------
        StoreError
            For a run without a result, and for one that is damaged.
        """
        require(self._store)
        self._store.check(whole=True, largest=READ_WHOLE)
        with damages(self._store, "run", "."):
            return adopt_names(self._kind.load(self._store), self._store)

    def _damage(self) -> StoreError | None:
        if not self._store.is_complete:  # what an unfinished run has not yet is no damage
            return None
        return next(iter(self._store.damages().values()), None)

    def _facts(self) -> Facts:
        with damages(self._store, "run", "."):
            return self._kind.facts(self._store)

    def _inputs(self) -> Lazy:
        settings = settings_of(self._store, {})
        return Lazy(lambda: driver.read_again(self._kind, self._store, settings))


def open_run(path: PathLike) -> Run:
    """Open a run, in a folder or at an address in an object store: state, settings, history, report.

    It can be verified, drawn and loaded.

    Parameters
    ----------
    path : path or text
        The run's folder, or its address in an object store.

    Returns
    -------
    Run
        With path, task, settings, state, is_complete, report and history; `factor` and `kernel(rows, columns)`, dask arrays;
        `verify()`, `picture(path)` and `load()`.

    Raises
    ------
    InputError
        If it does not exist.
    StoreError
        If it is damaged or of an unknown learner.

    See Also
    --------
    load : The fitted estimator alone.
    resume : To go further with an unfinished run.

    Examples
    --------
    >>> import tempfile
    >>> import dkl
    >>> folder = tempfile.TemporaryDirectory()
    >>> model = dkl.LowRankKernelRegressor(gamma=1.0, nu=0.1, work_dir=folder.name, n_jobs=1, random_state=0)
    >>> model = model.fit([[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, 0.0, -1.0])
    >>> run = dkl.open_run(model.run_path_)
    >>> run.task, run.state, run.report["outcome"]
    ('regression', 'complete, solved', 'solved')
    >>> folder.cleanup()
    """
    return Run(path)


def load(path: PathLike) -> Any:
    """Return the fitted estimator of a complete run in a folder or object store, without training data.

    Of a file of clusters (.npz) that `dkl cluster` wrote: the fitted `KernelKMeans`, which predicts for coordinates of the run.
    A `PairwiseKernelLearner` that transforms new patterns reads those it learned from, where the run has them from a file.

    Parameters
    ----------
    path : path or text
        The run's folder, its address in an object store, or a file of clusters.

    Returns
    -------
    A learner of the kind that was fitted, with its settings and results.

    Raises
    ------
    InputError
        If it does not exist.
    StoreError
        If it is damaged or of an unknown learner, and where there is no result yet.

    See Also
    --------
    open_run : What a run holds next to the estimator.
    resume : The estimator of an unfinished run.

    Examples
    --------
    >>> import tempfile
    >>> import dkl
    >>> folder, X = tempfile.TemporaryDirectory(), [[0.0], [1.0], [2.0], [3.0]]
    >>> model = dkl.LowRankKernelRegressor(gamma=1.0, nu=0.1, work_dir=folder.name, n_jobs=1, random_state=0)
    >>> model = model.fit(X, [0.0, 1.0, 0.0, -1.0])
    >>> bool((dkl.load(model.run_path_).predict(X) == model.predict(X)).all())
    True
    >>> folder.cleanup()
    """
    if clustering.is_clusters(path):
        return clustering.load(path)
    return Run(path).load()


def resume(
    path: PathLike,
    *,
    client: Client | None = None,
    n_jobs: int | None = None,
    callbacks: Callback | Sequence[Callback] | None = None,
    verbose: int = 0,
    **changes: object,
) -> BaseEstimator:
    """Resume a run from its last commit and return the fitted estimator; of a complete run the stored one.

    Parameters
    ----------
    path : path or text
        The run's folder, or its address in an object store.
    client : distributed.Client or None
        Where to run. None finds the current client, if there is one, else uses threads of this process.
    n_jobs, callbacks, verbose
        As in the estimators.
    **changes
        Settings that resuming may change, as `max_iter`; a run that ended unsolved goes further with them.

    Returns
    -------
    A learner of the kind that was fitted, with its settings and results.

    Raises
    ------
    InputError
        If the run does not exist, for a change that is not possible, or inputs that are not what they were.
    StoreError
        If the run is damaged or of an unknown learner, and where it ends without a result.
    InterruptedRunError
        Where a callback with `comes_back` ends it.

    See Also
    --------
    load : The estimator of a complete run.
    open_run : The state of a run.

    Examples
    --------
    >>> import tempfile
    >>> import dkl
    >>> folder, X = tempfile.TemporaryDirectory(), [[0.0], [1.0], [2.0], [3.0]]
    >>> model = dkl.LowRankKernelRegressor(gamma=1.0, nu=0.1, work_dir=folder.name, n_jobs=1, random_state=0)
    >>> model = model.fit(X, [0.0, 1.0, 0.0, -1.0])
    >>> bool((dkl.resume(model.run_path_).predict(X) == model.predict(X)).all())
    True
    >>> folder.cleanup()
    """
    run: RunStore = open_store(path, to_work=True)
    kind, settings = registry.kind(registry.task_of(run)), settings_of(run, changes)
    with damages(run, "run", "."):
        # A complete run of which a part is lost is not done: resuming it computes the part again.
        is_done = run.is_complete and not kind.goes_further(run, changes) and driver.damaged_result(kind, run) is None
    if is_done:
        run.publish()  # of one that was kept while its store was away
    else:
        inputs: Lazy = Lazy(lambda: driver.read_again(kind, run, settings))
        if kind.needs_inputs(run):
            inputs()  # an error of theirs leaves the report of a run that goes further where it is
        with driver.resumed(kind, run), watch_for(callbacks, verbose, MachineLog(run)) as watch:
            session = Session.find(client, threads=n_jobs, work=driver.name_of_work(kind, run))
            if kind.needs_inputs(run):
                inputs = standardized_inputs(run, inputs, settings, session)
            kind.fit(run, inputs, settings, session, watch)
            run.publish()
    if not run.is_complete:
        raise StoreError("the run ended without a result", where=run.name, remedy="resume it again")
    return adopt_names(kind.load(run), run)
