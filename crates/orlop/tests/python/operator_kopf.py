"""An operator written with kopf, for a kind of its own: creation, change, deletion, timers, events, status."""
import asyncio
import threading
import time
import kopf
from kubernetes import client, config

config.load_kube_config()
core, custom = client.CoreV1Api(), client.CustomObjectsApi()
WIDGETS = ("example.com", "v1", "default", "widgets")
changes = []

schema = {"type": "object", "properties": {
    "spec": {"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 0}, "colour": {"type": "string", "default": "red"}}},
    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
client.ApiextensionsV1Api().create_custom_resource_definition({
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {"group": "example.com", "scope": "Namespaced",
             "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
             "versions": [{"name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                           "schema": {"openAPIV3Schema": schema}}]}})


@kopf.on.startup()
def configure(settings, **_):
    settings.persistence.finalizer = "example.com/kopf"


@kopf.on.create("example.com", "v1", "widgets")
def created(name, body, spec, **_):
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"{name}-secret"}}
    kopf.adopt(secret, owner=body)
    core.create_namespaced_secret("default", secret)
    kopf.info(body, reason="Made", message=f"of size {spec['size']}")
    return {"colour": spec["colour"]}


@kopf.on.update("example.com", "v1", "widgets", field="spec.size")
def updated(old, new, **_):
    changes.append((old, new))


@kopf.timer("example.com", "v1", "widgets", interval=0.2)
def tick(patch, **_):
    patch.status["ticking"] = True


@kopf.on.delete("example.com", "v1", "widgets")
def deleted(name, **_):
    changes.append(("deleted", name))


# kopf retries a failed handler or a lost watch only after a minute, so the deadline covers two retries.
DEADLINE_SECONDS = 180


def eventually(what, found):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        value = found()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen")


def missing(read, *arguments):
    try:
        read(*arguments)
    except client.ApiException as error:
        return error.status == 404
    return False


ready, stop = threading.Event(), threading.Event()
operator = threading.Thread(target=lambda: asyncio.run(
    kopf.operator(namespaces=["default"], ready_flag=ready, stop_flag=stop, standalone=True)))
operator.start()
try:
    assert ready.wait(DEADLINE_SECONDS), "the operator is not ready"
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1}}
    custom.create_namespaced_custom_object(*WIDGETS, widget)
    made = eventually("the creation", lambda: (
        lambda found: found if "created" in found.get("status", {}) else None)(
            custom.get_namespaced_custom_object(*WIDGETS, "w")))
    assert made["status"]["created"] == {"colour": "red"}, made
    assert made["metadata"]["finalizers"] == ["example.com/kopf"], made
    secret = core.read_namespaced_secret("w-secret", "default")
    assert secret.metadata.owner_references[0].uid == made["metadata"]["uid"]
    eventually("the event", lambda: [
        event for event in core.list_namespaced_event("default", field_selector="involvedObject.name=w").items
        if event.reason == "Made" and event.message == "of size 1"])
    eventually("the timer", lambda: custom.get_namespaced_custom_object(*WIDGETS, "w")["status"].get("ticking"))
    custom.patch_namespaced_custom_object(*WIDGETS, "w", {"spec": {"size": 2}})
    eventually("the update", lambda: (1, 2) in changes)
    try:
        custom.patch_namespaced_custom_object(*WIDGETS, "w", {"spec": {"size": -1}})
        raise AssertionError("a size below nothing was taken")
    except client.ApiException as error:
        assert error.status == 422 and "should be greater than or equal to 0" in error.body, error
    custom.delete_namespaced_custom_object(*WIDGETS, "w")
    eventually("the cleaning up", lambda: ("deleted", "w") in changes)
    eventually("the deletion", lambda: missing(custom.get_namespaced_custom_object, *WIDGETS, "w"))
    # The garbage collector's part.
    eventually("the deletion of what it owned", lambda: missing(core.read_namespaced_secret, "w-secret", "default"))
finally:
    stop.set()
    operator.join(DEADLINE_SECONDS)
print("done")
