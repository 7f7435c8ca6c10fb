"""Another configuration of a stored run, sealed throughout as if the run had been made with it: what only its meaning betrays."""

import json
from pathlib import Path
from typing import Any

from dkl.stores.seals import KEY, identity_of, read_json, write_json


def write_config(run: Path, config: dict[str, Any]) -> None:
    """Write a run's configuration, and its identity wherever the run bears one."""
    identity = identity_of(config)
    root = read_json(run / "zarr.json")
    root["attributes"][KEY] = identity
    (run / "zarr.json").write_text(json.dumps(root))
    for path in run.rglob("*.json"):
        content = {} if path.name == "zarr.json" else read_json(path)
        if KEY in content:
            write_json(path, content | {KEY: identity})
    log = run / "events.jsonl"
    lines = log.read_text().splitlines() if log.is_file() else []
    log.write_text("".join(json.dumps(json.loads(line) | {KEY: identity}) + "\n" for line in lines))
    write_json(run / "config.json", config)
