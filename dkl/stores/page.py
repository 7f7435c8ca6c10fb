"""The page that describes a run's folder, from the registry:

python -m dkl.stores.page > dkl/stores/README.md
"""

from __future__ import annotations

from collections.abc import Iterable

from dkl.stores.registry import CHECKED, StoredArray, arrays_of, learners

INTRODUCTION = """\
# What stands in a run's folder

`python -m dkl.stores.page` writes this page from the registry of stored arrays (`registry.py`); a test compares them. A
learner declares its arrays in its own folder, in `dkl/estimators/<learner>/model.py` or `arrays.py`.

A run's folder is a zarr (version 3) group, for its owner alone. Every array is made as it is declared here, and what is
not as declared is refused when it is opened, by name, with what was found and what was wanted.

- **Type**: one of those named. Bytes are little-endian.
- **Chunks**: state is uncompressed, as its bits are noise, and every chunk ends in its crc32c; where other codecs are used
  they are named. A chunk that was never written reads as NaN (-1 in an array of integers), never as zeros.
- **Version**: of an array's meaning and layout, in its attribute `version` from 2 on.
- Small arrays, those in one chunk, have attributes `rows` and `crc32c`, of shape, type and content: zarr has no array of no
  rows, and a chunk that is valid by itself may be another array's.
- Earlier runs have their dimensions numbered (`weights_0`): they open as well.
- **Seals**: a chunk's checksum says that its bytes are whole, its part's manifest that they belong there.
- **Identity**: a digest of the configuration without the paths of its inputs. The root, every manifest, every line of the log and the
  report bear it; a run that has a part or state of another is refused by every command.
- What is in *italics* is not in every run.
"""

FILES = {
    "zarr.json": "The group: kind `dkl-run`, version, and the run's identity; of a complete run zarr's consolidated metadata, "
    "by which `zarr.open_group` lists its arrays, and which is not read here.",
    "config.json": "Parameters, inputs and their fingerprints, names of columns; with a crc32c of its content.",
    "LOCK": "Who works on the run (flock; without meaning once its holder is gone).",
    "events.jsonl": "A line an iteration and a line an event, such as the versions and the processor of an attempt.",
    "report.json": "Outcome, certificate, plan, seconds, checksums of the manifests; written last: a run with a report, and "
    "with all that the manifests name, is complete.",
    "*/MANIFEST.json": "A part's seal: bytes and crc32c of each of its files, by their names; with a crc32c of its content.",
    "report-*.json": "Earlier reports of a run that was resumed after its end, by their number of iterations.",
    "job/": "Of a run that was submitted: its script, the record of who has it, what it printed and its exit code "
    "(`dkl/runs/jobs/job.py`).",
    "tmp-*, del-*": "Being written, or on its way out; what a dead attempt has left goes when the run is resumed.",
}

OBJECTS = {
    "commits/00000007.json": "A commit: who made it, when, and its manifest's checksum; created only where there is none, by "
    "one conditional put.",
    "files/00000007-*.json": "Its manifest: of every file of the run the folder that it is in, its bytes and crc32c.",
    "files/00000007-*/": "Its files that were not in the commit before, by their names in a run's folder; an array that came "
    "whole with one commit opens as zarr there.",
}


def render() -> str:
    """Render the page, Markdown, on the learners of this package."""
    parts = [INTRODUCTION, "## Files of every run\n", *_files(FILES)]
    parts += [
        "\n## A run in an object store\n",
        *_files(OBJECTS),
        "",
        "The highest number counts; `object_runs.py` says more.",
    ]
    for learner in learners():
        arrays = arrays_of(learner)
        assert arrays is not None
        parts += [
            f"\n## {learner}\n",
            "| array | dimensions | type | chunks | version | what |",
            "|---|---|---|---|---|---|",
        ]
        parts += [_row(one) for one in arrays]
        if arrays.files:
            parts += ["", *_files(arrays.files)]
    return "\n".join(parts) + "\n"


def _files(files: dict[str, str]) -> Iterable[str]:
    return ["| file | what |", "|---|---|", *(f"| `{path}` | {what} |" for path, what in files.items())]


def _row(one: StoredArray) -> str:
    name = f"*`{one.path}`*" if one.optional else f"`{one.path}`"
    *first, last = one.dims
    dims = ", ".join([*first, f"[{last}]" if one.may_lack_last else last])
    codecs = "" if one.codecs == CHECKED else f"; {', '.join(one.codecs)}"
    doc = one.doc.replace("|", "\\|").replace("<", "&lt;")  # a table's and HTML's own
    return f"| {name} | {dims} | {', '.join(one.dtypes)} | {one.chunks.name}{codecs} | {one.version} | {doc} |"


if __name__ == "__main__":
    print(render(), end="")
