"""What every run says of its quality."""

import json
from pathlib import Path

from command_line import call

import dkl

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
