"""Kubernetes: one Indexed Job, whose pod 0 is the client and whose others are workers; it has succeeded once pod 0 has.

Pods that are evicted or preempted are replaced without counting; the client's code 4 (interrupted) and its death count
as attempts, and any other code ends the Job. Needs Kubernetes 1.31 (successPolicy).

The setting `pod` is merged into the pod template by the rules of Kubernetes' strategic merge patch, for the lists that the template has:
mappings are merged key by key, the lists of LIST_KEYS entry by entry, and null removes a key. A patch adds; what the template has stays,
except in security contexts.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from dkl.errors import InputError, ResourceError
from dkl.runs.jobs.job import FINAL_CODES, Job, JobRecord
from dkl.runs.jobs.settings import KubernetesSettings
from dkl.runs.jobs.system import State, answer, script

if TYPE_CHECKING:
    from dkl.stores.seals import Json


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
        # A volume has one source, and a variable one value: no part of it can be added.
        if before and merged[name] != before and path[-1] != "containers":
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


GRACE_SECONDS = 60
"""Seconds from SIGTERM to SIGKILL; the client needs ten."""
WORKERS_STAY_SECONDS = 15
"""Seconds by which workers outlast a client ended at the same time: it may need them to commit."""


def write(job: Job) -> dict[str, str]:
    """Return the script, which pods run from the volume, and the manifest."""
    settings = cast(KubernetesSettings, job.settings)
    if not job.folder.is_relative_to(settings.mount):
        option, got = job.folder_option, job.folder if job.folder_option == "--job-folder" else job.run
        remedy = "choose one there, and submit where the volume is mounted at the same path"
        raise InputError("not on the volume", where=option, got=got, wanted=f"below {settings.mount}", remedy=remedy)
    manifest = json.dumps(_manifest(job, settings), indent=1)
    return {job.files.script.name: script(job), job.files.manifest.name: manifest}


def _manifest(job: Job, settings: KubernetesSettings) -> Json:
    pods = (job.workers or 0) + 1
    # Cut, as Kubernetes adds an index and letters for the pods, whose names have 63 characters at most.
    base = re.sub(r"[^a-z0-9]+", "-", job.name.lower()).strip("-")[:40].strip("-")
    metadata = {"name": f"{base}-{uuid.uuid4().hex[:6]}", "labels": {"app.kubernetes.io/name": "dkl"}}
    if settings.namespace:
        metadata["namespace"] = settings.namespace
    code = {"containerName": "dkl", "operator": "In", "values": list(FINAL_CODES)}
    spec = {
        "completionMode": "Indexed",
        "completions": pods,
        "parallelism": pods,
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        "backoffLimit": settings.attempts - 1 + pods - 1,  # each worker may die once
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onExitCodes": code},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        },
        "template": _template(job, settings, {"labels": metadata["labels"]}),
    }
    if settings.ttl_seconds_after_finished is not None:
        spec["ttlSecondsAfterFinished"] = settings.ttl_seconds_after_finished
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _template(job: Job, settings: KubernetesSettings, metadata: Json) -> Json:
    """Return the pod template with the user's patch; InputError for an invalid patch, or pods of root's."""
    template = patched({"metadata": metadata, "spec": _pod(job, settings)}, settings.pod)
    pod = template["spec"].get("securityContext", {})
    (own,) = (one for one in template["spec"]["containers"] if one["name"] == "dkl")
    security = {**pod, **own.get("securityContext", {})}
    if security.get("runAsNonRoot") and security.get("runAsUser") == 0:
        wanted = "another user: a pod of root's is not started"
        remedy = "submit as another user, or allow it by pod: {spec: {securityContext: {runAsNonRoot: false}}}"
        raise InputError("is root", where="pod.spec.securityContext.runAsUser", got=0, wanted=wanted, remedy=remedy)
    return template


def _user() -> tuple[int, int]:
    """Return the user and the group of this process, whose alone the run's files are."""
    return os.getuid(), os.getgid()


def _pod(job: Job, settings: KubernetesSettings) -> Json:
    path = shlex.quote(str(job.files.script))
    # Each as long as it takes: exec, for SIGTERM to reach the script.
    start = f'if [ "$JOB_COMPLETION_INDEX" = 0 ]; then exec bash {path}; else exec bash {path} worker; fi'
    stay = f'[ "$JOB_COMPLETION_INDEX" = 0 ] || sleep {WORKERS_STAY_SECONDS}'
    needs = {"cpu": str(job.client_threads)}
    if job.megabytes is not None:
        needs["memory"] = f"{job.megabytes}Mi"
    container = {
        "name": "dkl",
        "image": settings.image,
        "command": ["bash", "-c", start],
        # A user without a home; /tmp is the pod's own.
        "env": [{"name": "HOME", "value": "/tmp"}],  # noqa: S108  # nosec B108
        # No limit of processors: a pod may use those that are idle.
        "resources": {"requests": needs, "limits": {name: value for name, value in needs.items() if name == "memory"}},
        "volumeMounts": [{"name": "data", "mountPath": settings.mount}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "lifecycle": {"preStop": {"exec": {"command": ["bash", "-c", stay]}}},
    }
    user, group = _user()
    # With the container's, what the Pod Security Standard "restricted" asks for.
    security = {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": group,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {
        # As podFailurePolicy asks for; the Job replaces pods.
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": security,
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": settings.claim}}],
    }


def submit(job: Job) -> str:
    """Create the Job by kubectl; return its name."""
    command = ["kubectl", "create", f"--filename={job.files.manifest}", "--output=name"]
    name = answer(command).stdout.strip().rpartition("/")[2]
    if not name:
        raise ResourceError("gave no name of a Job", where="kubectl")
    return name


def state(job: JobRecord) -> State:
    """Return the state of the Job by kubectl."""
    command = ["kubectl", "get", "job", job.id, *_where(job), "--output=json", "--ignore-not-found"]
    said = answer(command).stdout
    try:
        found = json.loads(said)["status"] if said.strip() else None
    except (ValueError, KeyError, TypeError) as error:
        raise ResourceError("gave no status", where="kubectl", got=repr(said[:100])) from error
    if found is None or _is_over(found):
        return State.ENDED
    return State.RUNNING if found.get("ready", 0) else State.WAITING


def reason(job: JobRecord) -> str:
    """Return why pods wait: what the scheduler says, or that of a container (ImagePullBackOff)."""
    command = ["kubectl", "get", "pods", f"--selector=job-name={job.id}", *_where(job), "--output=json"]
    try:
        pods = json.loads(answer(command).stdout)["items"]
        reasons = [one.get("message") or one.get("reason", "") for pod in pods for one in _waiting(pod["status"])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ResourceError("gave no pods", where="kubectl", got=error) from error
    return ", ".join(dict.fromkeys(" ".join(text.split()) for text in reasons if text))


def _waiting(status: Json) -> list[Json]:
    unscheduled = [
        one for one in status.get("conditions", ()) if one["type"] == "PodScheduled" and one["status"] == "False"
    ]
    return unscheduled + [
        one["state"]["waiting"] for one in status.get("containerStatuses", ()) if "waiting" in one["state"]
    ]


def _is_over(status: Json) -> bool:
    over = {"Complete", "Failed"}
    return any(one.get("type") in over and one.get("status") == "True" for one in status.get("conditions", ()))


def cancel(job: JobRecord, *, now: bool) -> None:
    """Delete the job by kubectl: its pods have GRACE_SECONDS to end, or none if `now`."""
    force = ["--grace-period=0", "--force"] if now else []
    command = ["kubectl", "delete", "job", job.id, *_where(job), "--ignore-not-found"]
    answer([*command, "--cascade=foreground", "--wait=false", *force])


def _where(job: JobRecord) -> list[str]:
    namespace = cast(KubernetesSettings, job.settings).namespace
    return [f"--namespace={namespace}"] if namespace else []
