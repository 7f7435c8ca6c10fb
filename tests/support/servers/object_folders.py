"""Folders of runs that are committed to an object store, and what its readers get."""

from dkl.stores.object_runs import ObjectRun

ONE, OTHER = "00000001", "0000000f"
"""Attempts."""


def write(folder, name, content):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)


def content_of(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fetched(root, place):
    """(run as a reader has it, its files)."""
    run = ObjectRun(root)
    run.fetch(place)
    return run, content_of(place)
