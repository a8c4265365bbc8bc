"""The dynamic client: kinds by discovery, server-side apply, and files of several objects."""
import json
from kubernetes import client, config, dynamic, utils
from kubernetes.dynamic.exceptions import ConflictError, NotFoundError, ResourceNotFoundError

config.load_kube_config()
api = client.ApiClient()
anything = dynamic.DynamicClient(api)

maps = anything.resources.get(api_version="v1", kind="ConfigMap")
assert maps.namespaced and "cm" in maps.short_names
deployments = anything.resources.get(api_version="apps/v1", kind="Deployment")
assert "scale" in deployments.subresources
try:
    anything.resources.get(api_version="example.com/v1", kind="Nothing")
    raise AssertionError("a kind that does not exist was found")
except ResourceNotFoundError:
    pass


def wanted(**data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "shared"}, "data": data}


def apply(manager, force=False, **data):
    return maps.server_side_apply(body=wanted(**data), namespace="default", field_manager=manager,
                                  force_conflicts=force)


made = apply("one", colour="red")
assert apply("one", colour="red").metadata.resourceVersion == made.metadata.resourceVersion
try:
    apply("two", colour="blue")
    raise AssertionError("no conflict")
except ConflictError as error:
    message = json.loads(error.body)["message"]
    assert message == 'Apply failed with 1 conflict: conflict with "one": .data.colour', message
made = apply("two", force=True, colour="blue")
assert made.data.colour == "blue"
managers = [(entry.manager, entry.operation) for entry in made.metadata.managedFields]
assert managers == [("two", "Apply")], managers

made = maps.patch(body={"data": {"x": "1"}}, name="shared", namespace="default",
                  content_type="application/merge-patch+json")
assert made.data.x == "1"
made = maps.patch(body=[{"op": "remove", "path": "/data/x"}], name="shared", namespace="default",
                  content_type="application/json-patch+json")
assert made.data.x is None
assert len(maps.get(namespace="default", field_selector="metadata.name=shared").items) == 1
maps.delete(name="shared", namespace="default")
try:
    maps.get(name="shared", namespace="default")
    raise AssertionError("it is still there")
except NotFoundError:
    pass

utils.create_from_dict(api, {"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "team"}, "stringData": {"a": "b"}},
]})
secret = anything.resources.get(api_version="v1", kind="Secret").get(name="s", namespace="team")
assert secret.data.a == "Yg==", secret
print("done")
