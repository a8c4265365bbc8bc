"""Watches: what is there, what comes, where one left off, and what is too old."""
import threading
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

config.load_kube_config()
core = client.CoreV1Api()


def config_map(name, **labels):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels=labels))


def collect(count, **options):
    """The first events of a watch, as type and name."""
    watcher, seen = watch.Watch(), []
    for event in watcher.stream(core.list_namespaced_config_map, "default", timeout_seconds=20, **options):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == count:
            watcher.stop()
    return seen, watcher.resource_version


begin = core.list_namespaced_config_map("default").metadata.resource_version
for name in ["a", "b"]:
    core.create_namespaced_config_map("default", config_map(name, app="web"))
seen, version = collect(1, resource_version=begin, label_selector="app=web")
assert seen == [("ADDED", "a")], seen
# Taken up again where it was left, nothing is missed and nothing comes twice.
core.patch_namespaced_config_map("b", "default", {"data": {"x": "1"}})
core.delete_namespaced_config_map("a", "default")
seen, version = collect(3, resource_version=version, label_selector="app=web")
assert seen == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")], seen
# Leaving the selection is a deletion to those who watch it, entering it an addition.
core.patch_namespaced_config_map("b", "default", {"metadata": {"labels": {"app": "db"}}})
core.patch_namespaced_config_map("b", "default", {"metadata": {"labels": {"app": "web"}}})
seen, version = collect(2, resource_version=version, label_selector="app=web")
assert seen == [("DELETED", "b"), ("ADDED", "b")], seen

# While a watch is open.
started = threading.Event()


def change():
    started.wait(20)
    core.create_namespaced_config_map("default", config_map("later"))


thread = threading.Thread(target=change)
thread.start()
watcher, seen = watch.Watch(), []
started.set()
for event in watcher.stream(core.list_namespaced_config_map, "default", resource_version=version, timeout_seconds=20):
    seen.append(event["object"].metadata.name)
    if "later" in seen:
        watcher.stop()
thread.join()

# A watch that is done ends by itself, and quietly.
assert [*watch.Watch().stream(core.list_namespaced_secret, "default", timeout_seconds=1)] == []
# What comes from before the beginning of time is no version.
try:
    [*watch.Watch().stream(core.list_namespaced_config_map, "default", resource_version="nonsense", timeout_seconds=1)]
    raise AssertionError("nonsense was watched from")
except ApiException as error:
    assert error.status == 400, error
print("done")
