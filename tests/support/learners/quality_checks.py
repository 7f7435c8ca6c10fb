"""What every run says of its quality."""

import json
from pathlib import Path

from command_line import call

import dkl
from dkl.stores.run import RunStore

LESS = "is less than that of"


def check_run(answer, path, proof="of its minimum"):
    """The quality stands in the last lines of a fit, in info, its JSON, the loaded estimator and the picture's title."""
    stored = json.loads((Path(path) / "report.json").read_text())["quality"]
    model = dkl.load(path)
    quality = model.result_.quality
    assert quality.as_dict() == stored
    assert str(quality) in answer.out and str(quality) in call("info", path).out
    assert json.loads(call("info", path, "--json").out)["report"]["quality"] == stored
    assert repr(quality) in repr(model.result_)
    title = model.plot().get_suptitle()
    assert title.startswith(quality.title) and proof in title
    assert proof in answer.out


def check_verify(path):
    """`dkl verify` recomputes the numbers on held-out data, and refuses a report where one of them is off by 1e-3."""
    sound = call("verify", path)
    assert sound.code == 0 and "not recomputed" not in sound.out, sound.out
    store = RunStore.open(path)
    kept = store.report()
    for name, shown in (("value", "quality"), ("alternative_value", "quality of the alternative")):
        for by in (1e-3, -1e-3):
            quality = kept["quality"] | {name: kept["quality"][name] + by}
            store.write_report(kept | {"quality": quality})
            answer = call("verify", path)
            assert answer.code == 6 and f"other {shown}" in answer.err, (name, by, answer)
    store.write_report(kept)
    assert call("verify", path) == sound


def check_other_model(path, change):
    """`dkl verify` refuses a stored model of the data that was not held out once it is another, `change(its arrays, the fit's)`."""
    store = RunStore.open(path)
    kept, report = store.read_arrays("held_out"), store.report()
    store.write_arrays("held_out", kept | change(kept, store.read_arrays("model")))
    store.write_report(report)
    answer = call("verify", path)
    assert answer.code == 6 and "without held-out" in answer.err, answer
    store.write_arrays("held_out", kept)
    store.write_report(report)
    assert call("verify", path).code == 0
