"""What is written of a committed factor: all of it, whoever joins or leaves while it is cut into parts."""

from pathlib import Path

import numpy as np
import pytest

from dkl.blocks.session import Session
from dkl.blocks.slabs.export import export_factor
from dkl.stores import run_parts
from dkl.stores.run import RunStore
from dkl.stores.slab_arrays import SlabArray


class Growing(Session):
    """A session that has a slot more each time it is asked, as where workers join."""

    asked = 0

    @property
    def n_slots(self) -> int:
        self.asked += 1
        return self.asked


def test_no_row_is_left_out_where_workers_join(
    tmp_path: Path, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_parts, "rows_per_chunk", lambda *_: 5)
    run = RunStore.create(tmp_path / "run.zarr", {"task": "pairwise"})
    generations, slabs = run.generations(), rng.standard_normal((3, 20, 4))
    folder = generations.begin(("U",), 3, 20, 4, "float64")
    array = SlabArray.open(folder / "U")
    written = [(str(array.chunk(k).relative_to(folder)), *array.write(k, slabs[k])) for k in range(3)]
    export_factor(Growing(None, threads=1), run, generations.commit(folder, written, 3, 1, {}), "U", 12, 2.0)
    factor = run.factor()
    run.close()
    assert factor.chunks[0] == 5 and np.array_equal(factor[...], 2.0 * np.hstack(list(slabs)))
