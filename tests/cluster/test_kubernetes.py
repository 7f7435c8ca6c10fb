"""Kubernetes without a cluster: manifests against its schemas, strictly, and the patch `pod` against what kubectl makes of it."""

import copy
import functools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dkl.errors import InputError
from dkl.runs.jobs import kubernetes
from dkl.runs.jobs.job import Job
from dkl.runs.jobs.kubernetes import LIST_KEYS
from dkl.runs.jobs.settings import KubernetesSettings

FOLDER = Path(__file__).parents[2] / "cluster" / "kubernetes"
VERSIONS = ("1.31", "1.37")
"""The first that has all that is used, and the newest with schemas."""
PATCH = {
    "metadata": {"annotations": {"sidecar.istio.io/inject": "false"}, "labels": {"team": "chem"}},
    "spec": {
        "serviceAccountName": "dkl",
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "low",
        "securityContext": {"runAsUser": None, "fsGroup": 2000},
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "20Gi"}}],
        "containers": [
            {
                "name": "dkl",
                "env": [
                    {"name": "AWS_REGION", "value": "eu-central-1"},
                    {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "store", "key": "token"}}},
                ],
                "envFrom": [{"secretRef": {"name": "store"}}],
                "resources": {"limits": {"ephemeral-storage": "20Gi"}},
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            }
        ],
    },
}


@pytest.fixture(autouse=True)
def _ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes, "_user", lambda: (1000, 1000))


def submitted(workers: int | None = 3, **settings: Any) -> dict[str, Any]:
    """The Job that `dkl submit` would create."""
    chosen = KubernetesSettings(claim="data", **settings).checked()
    job = Job("/data/run.zarr", Path("/data/run.zarr/job"), "kubernetes", chosen, workers, 10**9 if workers else None)
    return json.loads(kubernetes.write(job)["manifest.json"])


def shipped() -> list[Any]:
    """The documents in cluster/kubernetes; the Dask operator's as what it makes of it: Deployments of its pods, and the Service."""
    found = []
    for path in sorted(FOLDER.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            if document.get("kind") == "DaskCluster":
                found += [pytest.param(part, id=f"{path.stem}-{name}") for name, part in of_operator(document).items()]
            elif "kind" in document:
                found.append(pytest.param(document, id=f"{path.stem}-{document['kind']}"))
    return found


def of_operator(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A DaskCluster as documents of Kubernetes' own. The names around these are those of its definition, dask-kubernetes 2026.3.0."""
    assert document.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert document["spec"].keys() <= {"idleTimeout", "worker", "scheduler"}
    worker, scheduler = document["spec"]["worker"], document["spec"]["scheduler"]
    assert worker.keys() <= {"metadata", "replicas", "spec"} and scheduler.keys() <= {"metadata", "service", "spec"}
    labels = {"dask.org/cluster-name": document["metadata"]["name"]}
    found = {
        name: {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": document["metadata"],
            "spec": {
                "replicas": part.get("replicas", 1),
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": part["spec"]},
            },
        }
        for name, part in (("worker", worker), ("scheduler", scheduler))
    }
    service = {"apiVersion": "v1", "kind": "Service", "metadata": document["metadata"], "spec": scheduler["service"]}
    return found | {"service": service}


def shown_patch() -> dict[str, Any]:
    """What the page has for an example."""
    (text,) = re.findall(r"^    pod:\n(?:     .*\n)+", (FOLDER / "README.md").read_text(), flags=re.MULTILINE)
    return yaml.safe_load(text)["pod"]


JOBS = [
    pytest.param(lambda: submitted(), id="workers"),
    pytest.param(lambda: submitted(None), id="threads"),
    pytest.param(
        lambda: submitted(pod=PATCH, attempts=5, namespace="chem", ttl_seconds_after_finished=0), id="patched"
    ),
]


# -- schemas ------------------------------------------------------------------------------------------------------------


@functools.cache
def schemas() -> Any:
    """Kubernetes' own, as a package has them; each file, of two megabytes some, is read once."""
    found = pytest.importorskip("kubernetes_validate.utils", reason="kubernetes-validate is not installed")
    found.schema_contents = functools.cache(found.schema_contents)
    return found


def fault(document: dict[str, Any], version: str) -> str | None:
    """What the schemas of a version say against a document, a field that they do not know included; None: nothing."""
    validate = schemas()
    try:
        assert validate.validate(document, version, strict=True) == version
    except validate.ValidationError as error:
        return f"{'.'.join(map(str, error.path))}: {error.message}"
    return None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", shipped())
def test_manifests_are_what_kubernetes_takes(document: dict[str, Any], version: str) -> None:
    assert fault(document, version) is None


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("made", JOBS)
def test_jobs_are_what_kubernetes_takes(made: Any, version: str) -> None:
    assert fault(made(), version) is None


FREE = {"labels", "matchLabels", "annotations", "selector", "nodeSelector", "limits", "requests"}
"""Mappings whose keys are the user's."""


def fields(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all mappings whose keys are Kubernetes'."""
    if isinstance(value, dict) and not (path and path[-1] in FREE and "matchLabels" not in value):
        yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield from fields(part, (*path, name))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        document = document[name]
    return document


@pytest.mark.parametrize("document", [*shipped(), pytest.param(None, id="submitted")])
def test_a_field_that_kubernetes_does_not_know_is_refused_wherever_it_stands(document: dict[str, Any] | None) -> None:
    document = document or submitted(pod=PATCH)
    paths = list(fields(document))
    assert len(paths) >= 4
    for path in paths:
        wrong = copy.deepcopy(document)
        at(wrong, path)["serviceacountName"] = "x"
        found = fault(wrong, VERSIONS[-1])
        assert found is not None and "serviceacountName" in found, path


# -- security -----------------------------------------------------------------------------------------------------------


def restricted(pod: dict[str, Any]) -> None:
    """The Pod Security Standard "restricted", rule by rule as Kubernetes' page of it has them."""
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    allowed = {
        "name",
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    assert all(volume.keys() <= allowed for volume in pod["volumes"])
    whole = pod["securityContext"]
    assert whole.keys() <= {"runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "seccompProfile"}
    assert whole["runAsNonRoot"] is True and whole.get("runAsUser", 1) != 0
    assert whole["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod["containers"]:
        own = container["securityContext"]
        assert own == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.parametrize("document", shipped())
def test_pods_of_manifests_have_no_rights_that_they_do_not_need(document: dict[str, Any]) -> None:
    if "template" in document["spec"]:
        restricted(document["spec"]["template"]["spec"])


@pytest.mark.parametrize("made", JOBS)
def test_pods_of_jobs_have_no_rights_that_they_do_not_need(made: Any) -> None:
    restricted(made()["spec"]["template"]["spec"])


def test_root_is_refused_unless_the_patch_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet would never start the pod."""
    monkeypatch.setattr(kubernetes, "_user", lambda: (0, 0))
    with pytest.raises(InputError, match=r"^pod.spec.securityContext.runAsUser: is root; got 0; wanted another user"):
        submitted()
    for allowed in ({"runAsNonRoot": False}, {"runAsUser": 1000}, {"runAsUser": None}):
        pod = submitted(pod={"spec": {"securityContext": allowed}})["spec"]["template"]["spec"]
        assert pod["securityContext"].get("runAsUser") == allowed.get("runAsUser", 0)


# -- settings -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [0, 3600, None])
def test_seconds_for_which_a_job_that_has_ended_is_kept(seconds: int | None) -> None:
    assert submitted(ttl_seconds_after_finished=seconds)["spec"].get("ttlSecondsAfterFinished") == seconds
    assert submitted()["spec"]["ttlSecondsAfterFinished"] == 7 * 24 * 3600


def test_the_patch_is_not_in_the_record_of_the_job() -> None:
    """Of a run in an object store that is an object: a password in the patch would be there."""
    recorded = KubernetesSettings(claim="data", pod=PATCH).recorded()
    assert "pod" not in recorded and KubernetesSettings(**recorded).checked().claim == "data"


def unordered(value: Any, name: str = "") -> Any:
    """The same, with lists that are merged by a key in the order of the key."""
    if isinstance(value, dict):
        return {key: unordered(part, key) for key, part in value.items()}
    if isinstance(value, list):
        parts = [unordered(part) for part in value]
        return sorted(parts, key=lambda part: part[LIST_KEYS[name]]) if name in LIST_KEYS else parts
    return value


@pytest.mark.parametrize(
    "patch", [{}, PATCH, {"spec": {"volumes": [{"name": "data"}]}}, {"metadata": {"annotations": None}}]
)
def test_a_patch_is_merged_as_kubectl_merges_it(patch: dict[str, Any], tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl")
    (tmp_path / "job.json").write_text(json.dumps(submitted()))
    command = ["kubectl", "patch", "--local", f"--filename={tmp_path}/job.json", "--type=strategic", "--output=json"]
    command.append(f"--patch={json.dumps({'spec': {'template': patch}})}")
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "KUBECONFIG": "/dev/null", "HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    merged = json.loads(done.stdout)["spec"]["template"]
    assert unordered(submitted(pod=patch)["spec"]["template"]) == unordered(merged)


def leaves(value: Any, patch: Any = None) -> Iterator[tuple[str, Any]]:
    """For each value in a pod template outside of security contexts a patch that changes it alone, and one that removes it."""
    for name, part in value.items():
        if name == "securityContext":
            continue
        if isinstance(part, dict):
            yield from ((where, {name: inner}) for where, inner in leaves(part))
        elif name in LIST_KEYS:
            key = LIST_KEYS[name]
            for entry in part:
                yield from (
                    (where, {name: [{key: entry[key]} | inner]}) for where, inner in leaves(entry) if key not in inner
                )
        else:
            yield name, {name: "other"}
            yield name, {name: None}


def test_no_patch_changes_what_dkl_sets() -> None:
    template = submitted()["spec"]["template"]
    tried = list(leaves(template))
    assert {"image", "command", "restartPolicy", "memory", "cpu", "claimName", "value"} <= {name for name, _ in tried}
    for _, patch in tried:
        with pytest.raises(
            InputError, match=r"^pod\.(spec|metadata)\..*: (is set by dkl|not a list|not a mapping); got "
        ):
            submitted(pod=patch)
    assert submitted(pod=copy.deepcopy(template))["spec"]["template"] == template


@pytest.mark.parametrize(
    "patch, said",
    [
        (
            "serviceAccountName: dkl",
            r"pod.serviceAccountName: not a part of a pod template; .* pod: {spec: {serviceAcc",
        ),
        ("spec: [a]", r"pod.spec: not a mapping; got \['a'\]"),
        ("spec: {containers: {name: dkl}}", r"pod.spec.containers: not a list; got {'name': 'dkl'}"),
        (
            "spec: {containers: [{env: []}]}",
            r"pod.spec.containers\[0\]: not an entry with a name; got {'env': \[\]}; .* name",
        ),
        (
            "spec: {containers: [{name: dkl, env: {A: b}}]}",
            r"pod.spec.containers\[dkl\].env: not a list; got {'A': 'b'}",
        ),
        (
            "spec: {containers: [{name: dkl, env: [{name: A, value: 1}]}]}",
            r"\[dkl\].env\[A\].value: not text; got 1; .*quotes",
        ),
        ("spec: {containers: [{name: x, env: [{name: A, value: on}]}]}", r"\[x\].env\[A\].value: not text; got True"),
        (
            "spec: {nodeSelector: {gpu: true}}",
            r"pod.spec.nodeSelector.gpu: not text; got True; wanted text; put it in quotes",
        ),
        (
            "metadata: {annotations: {until: 2026-01-01}}",
            r"annotations.until: not a value that JSON has; got datetime.date",
        ),
        ("spec: {priority: .nan}", r"pod.spec.priority: not a value that JSON has; got nan"),
        ("spec: {1: x}", r"pod.spec: not the name of a field; got 1"),
        ("spec: {$patch: replace}", r"pod.spec: not the name of a field; got '\$patch'"),
        ("spec: {volumes: [{name: data, emptyDir: {}}]}", r"pod.spec.volumes\[data\]: is set by dkl; got .*emptyDir"),
        (
            "spec: {containers: [{name: dkl, image: x}]}",
            r"\[dkl\].image: is set by dkl; got 'x'; wanted 'dkl:latest'; .*`image`",
        ),
        (
            "spec: {containers: [{name: dkl, env: [{name: JOB_COMPLETION_INDEX, value: '1'}]}]}",
            r"env\[JOB_COMPLETION_INDEX\]: is set by Kubernetes; leave it out",
        ),
    ],
)
def test_a_patch_that_cannot_be_is_refused_by_place(patch: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        submitted(pod=yaml.safe_load(patch))


@pytest.mark.parametrize("pod, got", [(["a"], r"\['a'\]"), ("text", "'text'"), (None, "None")])
def test_a_patch_is_a_mapping(pod: Any, got: str) -> None:
    with pytest.raises(InputError, match=f"pod: not a value for it; got {got}; wanted a mapping"):
        submitted(pod=pod)
