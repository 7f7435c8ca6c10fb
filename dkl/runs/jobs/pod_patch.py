"""Merge of the setting `pod` of Kubernetes into the pod template of a job.

The rules are those of Kubernetes' strategic merge patch, for the lists that the template has: mappings are merged key by key, the lists of
LIST_KEYS entry by entry, and null removes a key. A patch adds; what the template has stays, except in security contexts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from dkl.errors import InputError

LIST_KEYS = {"containers": "name", "env": "name", "volumes": "name", "volumeMounts": "mountPath"}
"""Lists of the template that are merged by a key of their entries."""
FREE = "securityContext"
"""Mappings that a patch may change: which rights a pod has is the cluster's to say."""
RESERVED = "JOB_COMPLETION_INDEX"
"""Variable that holds the index of a pod in its job."""
REMEDIES = {
    "image": "name it by `image`",
    "memory": "choose it by --memory-limit",
    "cpu": "choose it by --threads",
    "claimName": "name it by `claim`",
}
"""Setting or option that decides a value of the template, by the name of its field."""

Fields = dict[str, Any]


def patched(template: Fields, patch: Fields) -> Fields:
    """Return the template with the patch merged into it; both stay as they are.

    Raises InputError if the patch is malformed, or would change what the template has outside of security contexts.
    """
    unknown = [str(name) for name in patch if name not in ("metadata", "spec")]
    if unknown:
        remedy = f"put it below one of them, as in pod: {{spec: {{{unknown[0]}: ...}}}}"
        raise InputError(
            "not a part of a pod template", where=f"pod.{unknown[0]}", wanted="metadata, spec", remedy=remedy
        )
    _check_plain(patch, "pod")
    merged: Fields = _merged(template, patch, ("pod",))
    for where, value in _texts(merged):
        if not isinstance(value, str):
            raise InputError("not text", where=where, got=repr(value), wanted="text", remedy="put it in quotes")
    return merged


def _check_plain(value: object, where: str) -> None:
    """Raise InputError for what JSON does not have, and for directives of patches."""
    if isinstance(value, dict):
        for name, part in value.items():
            if not isinstance(name, str) or name.startswith("$"):
                raise InputError("not the name of a field", where=where, got=repr(name), wanted="text without $")
            _check_plain(part, f"{where}.{name}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            _check_plain(part, f"{where}[{number}]")
    elif not (value is None or isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value))):
        raise InputError(
            "not a value that JSON has", where=where, got=repr(value), wanted="text", remedy="put it in quotes"
        )


def _merged(base: Any, patch: Any, path: tuple[str, ...]) -> Any:
    """Return `base`, the part of the template at `path`, with `patch` merged into it. Raises InputError."""
    key = LIST_KEYS.get(path[-1]) if isinstance(base, list) else None
    if isinstance(base, dict):
        return _merged_mapping(base, _of_type(dict, patch, "a mapping", path), path)
    if key is not None:
        return _merged_list(base, _of_type(list, patch, "a list", path), key, path)
    if patch == base or FREE in path:
        return patch
    raise _own(base, patch, path)


def _own(base: object, patch: object, path: tuple[str, ...]) -> InputError:
    """Return the error of a patch that would change what the template has."""
    remedy = REMEDIES.get(path[-1], "leave it out")
    return InputError("is set by dkl", where=_shown(path), got=repr(patch), wanted=repr(base)[:80], remedy=remedy)


def _merged_mapping(base: Fields, patch: Fields, path: tuple[str, ...]) -> Fields:
    merged = {name: _merged(part, patch[name], (*path, name)) if name in patch else part for name, part in base.items()}
    added = {name: part for name, part in patch.items() if name not in base}
    return {name: part for name, part in {**merged, **added}.items() if part is not None}


def _merged_list(base: list[Fields], patch: list[Any], key: str, path: tuple[str, ...]) -> list[Fields]:
    merged = {entry[key]: entry for entry in base}
    for number, entry in enumerate(patch):
        name = entry.get(key) if isinstance(entry, dict) else None
        if not isinstance(name, str):
            where = f"{_shown(path)}[{number}]"
            raise InputError("not an entry with a name", where=where, got=repr(entry), wanted=f"a mapping with {key}")
        before = merged.get(name, {})
        merged[name] = _merged_mapping(before, entry, (*path, name))
        if (
            before and merged[name] != before and path[-1] != "containers"
        ):  # a volume has one source, a variable one value
            raise _own(before, entry, (*path, name))
    return list(merged.values())


def _of_type(kind: type[Any], patch: Any, wanted: str, path: tuple[str, ...]) -> Any:
    if not isinstance(patch, kind):
        raise InputError(f"not {wanted}", where=_shown(path), got=repr(patch), wanted=wanted)
    return patch


def _shown(path: tuple[str, ...]) -> str:
    """Return a path as it is written: entries of lists in brackets."""
    return "".join(
        f"[{part}]" if before in LIST_KEYS else f".{part}" for before, part in zip(("", *path), path, strict=False)
    )[1:]


def _texts(template: Fields) -> Iterator[tuple[str, Any]]:
    """Yield place and value of what YAML may read as number or truth value, and Kubernetes wants as text.

    Raises InputError for a variable that Kubernetes itself sets.
    """
    maps = [("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector")]
    for part, name in maps:
        found = template[part].get(name, {})
        for key, value in _of_type(dict, found, "a mapping", ("pod", part, name)).items():
            yield f"pod.{part}.{name}.{key}", value
    for container in template["spec"]["containers"]:
        where = ("pod", "spec", "containers", container["name"], "env")
        for variable in _merged_list([], _of_type(list, container.get("env", []), "a list", where), "name", where):
            place = _shown((*where, variable["name"]))
            if variable["name"] == RESERVED:
                raise InputError("is set by Kubernetes", where=place, remedy="leave it out")
            yield f"{place}.value", variable.get("value", "")
