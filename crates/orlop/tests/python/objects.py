"""Typed objects: what they are made of, how they change, and how requests are refused."""
import json
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

config.load_kube_config()
core, apps, batch = client.CoreV1Api(), client.AppsV1Api(), client.BatchV1Api()


def refused(code, reason, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ApiException as error:
        status = json.loads(error.body)
        assert (error.status, status["reason"]) == (code, reason), error
        return status
    raise AssertionError(f"{call.__name__} was not refused")


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"app": "web"}), data=data)


assert {n.metadata.name for n in core.list_namespace().items} >= {"default", "kube-system"}
made = core.create_namespaced_config_map("default", config_map("a", x="1"))
assert made.metadata.uid and made.metadata.resource_version and made.metadata.creation_timestamp
status = refused(409, "AlreadyExists", core.create_namespaced_config_map, "default", config_map("a"))
assert status["message"] == 'configmaps "a" already exists', status
status = refused(404, "NotFound", core.read_namespaced_config_map, "nothing", "default")
assert status["details"] == {"name": "nothing", "kind": "configmaps"}, status

made.data["x"] = "2"
core.replace_namespaced_config_map("a", "default", made)
refused(409, "Conflict", core.replace_namespaced_config_map, "a", "default", made)
assert core.read_namespaced_config_map("a", "default").data == {"x": "2"}

# The client tells the type of a patch by its shape: a list is a JSON patch, a map a strategic merge.
patched = core.patch_namespaced_config_map("a", "default", [{"op": "add", "path": "/data/y", "value": "3"}])
assert patched.data == {"x": "2", "y": "3"}
patched = core.patch_namespaced_config_map("a", "default", {"data": {"x": None}})
assert patched.data == {"y": "3"}
patched = core.patch_namespaced_config_map("a", "default", {"data": {"z": "4"}}, dry_run="All")
assert patched.data == {"y": "3", "z": "4"}
assert core.read_namespaced_config_map("a", "default").data == {"y": "3"}
refused(422, "Invalid", core.patch_namespaced_config_map, "a", "default",
        [{"op": "test", "path": "/data/y", "value": "9"}])

# Lists: selectors and pages.
for number in range(5):
    core.create_namespaced_config_map("default", config_map(f"page-{number}"))
selected = core.list_namespaced_config_map("default", label_selector="app in (web, db)")
assert len(selected.items) == 6
by_name = core.list_config_map_for_all_namespaces(field_selector="metadata.name=a")
assert [item.metadata.name for item in by_name.items] == ["a"]
names, token, versions = [], None, set()
while True:
    page = core.list_namespaced_config_map("default", limit=2, _continue=token)
    names += [item.metadata.name for item in page.items]
    versions.add(page.metadata.resource_version)
    token = page.metadata._continue
    if not token:
        break
assert names == sorted(names) and len(set(names)) == len(names) >= 6, names
assert len(versions) == 1, versions
status = refused(400, "BadRequest", core.list_namespaced_config_map, "default", label_selector="a b c")
assert "unable to parse requirement" in status["message"], status

# Workloads, with defaults, subresources and validation.
template = client.V1PodTemplateSpec(
    metadata=client.V1ObjectMeta(labels={"app": "web"}),
    spec=client.V1PodSpec(containers=[client.V1Container(name="web", image="nginx:1")]))
deployment = client.V1Deployment(
    metadata=client.V1ObjectMeta(name="web"),
    spec=client.V1DeploymentSpec(selector=client.V1LabelSelector(match_labels={"app": "web"}), template=template))
made = apps.create_namespaced_deployment("default", deployment)
assert made.spec.replicas == 1 and made.spec.strategy.rolling_update.max_surge == "25%"
apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 4}})
scale = apps.read_namespaced_deployment_scale("web", "default")
assert scale.spec.replicas == 4
made = apps.patch_namespaced_deployment_status("web", "default", {"status": {"replicas": 4}, "spec": {"replicas": 9}})
assert (made.spec.replicas, made.status.replicas) == (4, 4)
deployment.metadata.name, deployment.spec.replicas = "wrong", -1
status = refused(422, "Invalid", apps.create_namespaced_deployment, "default", deployment)
causes = [(cause["reason"], cause["field"]) for cause in status["details"]["causes"]]
assert causes == [("FieldValueInvalid", "spec.replicas")], causes

# Deletion: by collection, with propagation, with a precondition.
wrong = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="other"))
refused(409, "Conflict", core.delete_namespaced_config_map, "a", "default", body=wrong)
deleted = core.delete_namespaced_config_map("a", "default")
assert (deleted["status"], deleted["details"]["name"]) == ("Success", "a"), deleted
core.delete_collection_namespaced_config_map("default", label_selector="app=web")
assert core.list_namespaced_config_map("default", label_selector="app=web").items == []
apps.delete_namespaced_deployment("web", "default", propagation_policy="Foreground")

# Who one is, what one may do, and which version this is.
review = client.AuthenticationV1Api().create_self_subject_review(client.V1SelfSubjectReview())
assert review.status.user_info.username == "kubernetes-admin"
access = client.V1SelfSubjectAccessReview(spec=client.V1SelfSubjectAccessReviewSpec(
    resource_attributes=client.V1ResourceAttributes(verb="create", resource="pods")))
assert client.AuthorizationV1Api().create_self_subject_access_review(access).status.allowed
token = core.create_namespaced_service_account_token("default", "default", client.AuthenticationV1TokenRequest(
    spec=client.V1TokenRequestSpec(audiences=[])))
assert token.status.token.count(".") == 2
assert client.VersionApi().get_code().git_version.startswith("v1.")
print("done")
