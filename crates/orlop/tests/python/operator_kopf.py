"""An operator written with kopf: handlers of creation, change and deletion, state kept in annotations."""
import asyncio
import threading
import time
import kopf
from kubernetes import client, config

config.load_kube_config()
core = client.CoreV1Api()
changes = []


@kopf.on.startup()
def configure(settings, **_):
    settings.posting.level = 30
    settings.persistence.finalizer = "example.com/kopf"


@kopf.on.create("", "v1", "configmaps", labels={"managed": "yes"})
def created(name, body, patch, **_):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{name}-secret"}, "stringData": {"a": "b"}}
    kopf.adopt(secret, owner=body)
    core.create_namespaced_secret("default", secret)
    patch.metadata.labels["seen"] = "created"
    return {"made": True}


@kopf.on.update("", "v1", "configmaps", labels={"managed": "yes"}, field="data")
def updated(old, new, **_):
    changes.append((old, new))


@kopf.on.delete("", "v1", "configmaps", labels={"managed": "yes"})
def deleted(name, **_):
    changes.append(("deleted", name))


def eventually(what, found):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen")


def missing(read):
    try:
        read("a" if read == core.read_namespaced_config_map else "a-secret", "default")
    except client.ApiException as error:
        return error.status == 404
    return False


ready, stop = threading.Event(), threading.Event()
operator = threading.Thread(target=lambda: asyncio.run(
    kopf.operator(namespaces=["default"], ready_flag=ready, stop_flag=stop, standalone=True)))
operator.start()
try:
    assert ready.wait(20), "the operator is not ready"
    core.create_namespaced_config_map("default", {"metadata": {"name": "a", "labels": {"managed": "yes"}}, "data": {"x": "1"}})
    owner = eventually("the creation", lambda: (
        lambda found: found if found.metadata.labels.get("seen") == "created" else None)(
            core.read_namespaced_config_map("a", "default")))
    assert owner.metadata.finalizers == ["example.com/kopf"], owner.metadata.finalizers
    secret = core.read_namespaced_secret("a-secret", "default")
    assert secret.metadata.owner_references[0].uid == owner.metadata.uid
    core.patch_namespaced_config_map("a", "default", {"data": {"x": "2"}})
    eventually("the update", lambda: ({"x": "1"}, {"x": "2"}) in changes)
    core.delete_namespaced_config_map("a", "default")
    eventually("the cleaning up", lambda: ("deleted", "a") in changes)
    eventually("the deletion", lambda: missing(core.read_namespaced_config_map))
    # The garbage collector's part.
    eventually("the deletion of what it owned", lambda: missing(core.read_namespaced_secret))
finally:
    stop.set()
    operator.join(20)
print("done")
