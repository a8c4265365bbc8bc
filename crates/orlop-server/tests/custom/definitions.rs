//! CustomResourceDefinitions: names, conditions, serving, deletion.

use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};

use crate::server::{DEFINITIONS, Server, definition, path, version, widget, widgets};

fn condition<'a>(definition: &'a Value, kind: &str) -> (&'a str, &'a str, &'a str) {
    let all = definition["status"]["conditions"].as_array().unwrap();
    let found = all.iter().find(|condition| condition["type"] == kind).unwrap();
    let text = |field: &str| found[field].as_str().unwrap();
    (text("status"), text("reason"), text("message"))
}

#[tokio::test]
async fn definition_is_served_before_its_create_response() {
    let server = Server::start().await;
    let versions = json!([version("v1", true, json!({"size": {"type": "integer"}}))]);
    let created = server.create(DEFINITIONS, &widgets(versions)).await.ok();
    assert_eq!(condition(&created, "NamesAccepted"), ("True", "NoConflicts", "no conflicts found"));
    let established = ("True", "InitialNamesAccepted", "the initial names have been accepted");
    assert_eq!(condition(&created, "Established"), established);
    assert_eq!(created["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(
        created["status"]["acceptedNames"],
        json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"})
    );
    assert_eq!(created["spec"]["conversion"], json!({"strategy": "None"}));

    let resources = server.get("/apis/example.com/v1").await.ok();
    assert_eq!(resources["resources"][0]["singularName"], "widget");
    let groups = server.get("/apis").await.ok();
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "example.com"));
    let document = server.get("/openapi/v3/apis/example.com/v1").await.ok();
    let schema = &document["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(schema["properties"]["spec"]["properties"]["size"], json!({"type": "integer"}));
    server.create(&path("v1"), &widget("v1", "a", json!({"size": 1}))).await.ok();
}

#[tokio::test]
async fn invalid_definition_reports_all_errors() {
    let server = Server::start().await;
    let versions = json!([{"name": "v1", "served": true, "storage": true}]);
    let message = server.create(DEFINITIONS, &widgets(versions)).await.refused(422);
    assert!(message.contains("spec.versions[0].schema.openAPIV3Schema: Required value"), "{message}");
    let mut other = widgets(json!([version("v1", true, json!({}))]));
    other["metadata"]["name"] = "gadgets.example.com".into();
    let message = server.create(DEFINITIONS, &other).await.refused(422);
    assert!(message.contains("must be spec.names.plural+\".\"+spec.group"), "{message}");
    assert_eq!(server.get("/apis/example.com/v1").await.code, 404);
}

#[tokio::test]
async fn conflicting_name_is_accepted_after_its_release() {
    let server = Server::start().await;
    let versions = json!([version("v1", true, json!({}))]);
    let mut first = definition("example.com", "firsts", "First", versions.clone());
    first["spec"]["names"]["shortNames"] = json!(["f"]);
    server.create(DEFINITIONS, &first).await.ok();

    let mut second = definition("example.com", "seconds", "First", versions.clone());
    second["spec"]["names"]["shortNames"] = json!(["f", "s"]);
    let second = server.create(DEFINITIONS, &second).await.ok();
    // The last conflict is reported, as in Kubernetes.
    let in_use = ("False", "ListKindConflict", "\"FirstList\" is already in use");
    assert_eq!(condition(&second, "NamesAccepted"), in_use);
    assert_eq!(condition(&second, "Established"), ("False", "NotAccepted", "not all names are accepted"));
    assert_eq!(second["status"]["acceptedNames"], json!({"plural": "seconds", "kind": ""}));
    assert_eq!(server.get("/apis/example.com/v1/seconds").await.code, 404);

    // Names of another group do not conflict.
    let elsewhere = definition("example.org", "firsts", "First", versions);
    let elsewhere = server.create(DEFINITIONS, &elsewhere).await.ok();
    assert_eq!(condition(&elsewhere, "NamesAccepted").0, "True");

    server.delete(&format!("{DEFINITIONS}/firsts.example.com")).await.ok();
    server.eventually("/apis/example.com/v1/seconds", |answer| answer.code == 200).await;
    let second = server.get(&format!("{DEFINITIONS}/seconds.example.com")).await.ok();
    assert_eq!(condition(&second, "Established").0, "True");
    assert_eq!(second["status"]["acceptedNames"]["shortNames"], json!(["f", "s"]));
}

#[tokio::test]
async fn protected_groups_need_approval_and_builtin_kinds_are_not_replaced() {
    let server = Server::start().await;
    let mut batch = definition(
        "discovery.k8s.io",
        "endpointslices",
        "EndpointSlice",
        json!([version("v1", true, json!({}))]),
    );
    let message = server.create(DEFINITIONS, &batch).await.refused(422);
    assert!(message.contains("api-approved.kubernetes.io"), "{message}");
    batch["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, for a test"});
    let created = server.create(DEFINITIONS, &batch).await.ok();
    let approval = condition(&created, "KubernetesAPIApprovalPolicyConformant");
    assert_eq!(approval, ("False", "UnapprovedAnnotation", "not approved: \"unapproved, for a test\""));
    // The built-in kind still answers.
    let slice =
        server.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes").await.ok();
    assert_eq!(slice["addressType"], "IPv4");
    // Built-in objects survive the conflicting definition.
    server.delete(&format!("{DEFINITIONS}/endpointslices.discovery.k8s.io")).await.ok();
    server
        .eventually(&format!("{DEFINITIONS}/endpointslices.discovery.k8s.io"), |answer| answer.code == 404)
        .await;
    server.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes").await.ok();
}

#[tokio::test]
async fn definition_deletion_waits_for_finalizers_of_its_objects() {
    let server = Server::start().await;
    let name = format!("{DEFINITIONS}/widgets.example.com");
    server.create(DEFINITIONS, &widgets(json!([version("v1", true, json!({}))]))).await.ok();
    server.create(&path("v1"), &widget("v1", "free", json!({}))).await.ok();
    let mut held = widget("v1", "held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.create(&path("v1"), &held).await.ok();
    let mut watch = server.watch(&format!("{}?watch=true&resourceVersion=0", path("v1"))).await;

    let marked = server.delete(&name).await.ok();
    assert_eq!(marked["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(condition(&marked, "Terminating").0, "True");
    let why = server.create(&path("v1"), &widget("v1", "late", json!({}))).await.refused(403);
    assert_eq!(
        why,
        "widgets.example.com \"late\" is forbidden: create not allowed while custom resource definition is terminating"
    );
    server.eventually(&format!("{}/free", path("v1")), |answer| answer.code == 404).await;
    let waiting = server.get(&name).await.ok();
    let in_progress = ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");
    assert_eq!(condition(&waiting, "Terminating"), in_progress);

    server.merge(&format!("{}/held", path("v1")), json!({"metadata": {"finalizers": null}})).await.ok();
    server.eventually(&name, |answer| answer.code == 404).await;
    // The definition may be gone before the registry changes.
    server.eventually(&path("v1"), |answer| answer.code == 404).await;
    assert_eq!(server.get("/apis/example.com").await.code, 404);
    let mut gone = Vec::new();
    while let Some(event) = watch.next().await {
        if event["type"] == "DELETED" {
            gone.push(event["object"]["metadata"]["name"].clone());
        }
    }
    assert_eq!(gone, ["free", "held"], "the watch told everything and then ended");

    // A new definition of the same name has no objects.
    server.create(DEFINITIONS, &widgets(json!([version("v1", true, json!({}))]))).await.ok();
    assert_eq!(server.get(&path("v1")).await.ok()["items"], json!([]));
}

#[tokio::test]
async fn finalizer_ignores_recreated_definition_of_the_same_name() {
    let server = Server::start().await;
    let name = format!("{DEFINITIONS}/widgets.example.com");
    let definition = widgets(json!([version("v1", true, json!({}))]));
    server.create(DEFINITIONS, &definition).await.ok();
    let mut held = widget("v1", "held", json!({}));
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.create(&path("v1"), &held).await.ok();
    server.delete(&name).await.ok();
    let is_marked =
        |answer: &crate::server::Answer| answer.body["metadata"].get("deletionTimestamp").is_some();
    server.eventually(&format!("{}/held", path("v1")), is_marked).await;
    server.merge(&name, json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(server.get(&name).await.code, 404);

    server.create(DEFINITIONS, &definition).await.ok();
    server.create(&path("v1"), &widget("v1", "new", json!({}))).await.ok();
    server.merge(&format!("{}/held", path("v1")), json!({"metadata": {"finalizers": null}})).await.ok();
    server.eventually(&format!("{}/held", path("v1")), |answer| answer.code == 404).await;
    server.get(&format!("{}/new", path("v1"))).await.ok();
    let conditions = server.get(&name).await.ok()["status"]["conditions"].clone();
    assert!(conditions.as_array().unwrap().iter().all(|condition| condition["type"] != "Terminating"));
}

#[tokio::test]
async fn schema_change_is_effective_before_its_response() {
    let server = Server::start().await;
    let name = format!("{DEFINITIONS}/widgets.example.com");
    let strict = json!([version("v1", true, json!({"size": {"type": "integer", "maximum": 5}}))]);
    server.create(DEFINITIONS, &widgets(strict)).await.ok();
    server.create(&path("v1"), &widget("v1", "big", json!({"size": 9}))).await.refused(422);
    server.create(&path("v1"), &widget("v1", "old", json!({"size": 1}))).await.ok();
    let mut watch = server.watch(&format!("{}?watch=true&resourceVersion=0", path("v1"))).await;
    assert_eq!(watch.next().await.unwrap()["object"]["metadata"]["name"], "old");

    let wider = version("v1", true, json!({"color": {"type": "string", "default": "red"}}));
    let changed = server.merge(&name, json!({"spec": {"versions": [wider]}})).await.ok();
    assert_eq!(changed["metadata"]["generation"], 2);
    // Stored objects are pruned and defaulted by the new schema.
    let old = server.get(&format!("{}/old", path("v1"))).await.ok();
    assert_eq!(old["spec"], json!({"color": "red"}));
    let listed = server.get(&path("v1")).await.ok();
    assert_eq!(listed["items"][0]["spec"], json!({"color": "red"}));
    assert!(watch.next().await.is_none(), "the watch ends, so that clients see the new shape");
    let unchanged = server.merge(&name, json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    assert_eq!(unchanged["metadata"]["generation"], 2);
}

#[tokio::test]
async fn definitions_are_served_after_restart_and_by_other_servers() {
    let folder = tempfile::tempdir().unwrap();
    let config = || Config::new(Endpoint::Sqlite(folder.path().join("orlop.db")));
    let server = Server::on(Store::open(config()).await.unwrap()).await;
    server.create(DEFINITIONS, &widgets(json!([version("v1", true, json!({}))]))).await.ok();
    server.create(&path("v1"), &widget("v1", "a", json!({}))).await.ok();

    let second = Server::on(server.store.clone()).await;
    second.get(&format!("{}/a", path("v1"))).await.ok();
    let gadgets = definition("example.com", "gadgets", "Gadget", json!([version("v1", true, json!({}))]));
    second.create(DEFINITIONS, &gadgets).await.ok();
    server.eventually("/apis/example.com/v1/gadgets", |answer| answer.code == 200).await;
    second.delete(&format!("{DEFINITIONS}/gadgets.example.com")).await.ok();
    server.eventually("/apis/example.com/v1/gadgets", |answer| answer.code == 404).await;

    drop((server, second));
    let again = Server::on(Store::open(config()).await.unwrap()).await;
    again.get(&format!("{}/a", path("v1"))).await.ok();
}

#[tokio::test]
async fn stored_versions_cannot_drop_the_storage_version() {
    let server = Server::start().await;
    let name = format!("{DEFINITIONS}/widgets.example.com");
    server.create(DEFINITIONS, &widgets(json!([version("v1", true, json!({}))]))).await.ok();
    let two = json!([version("v1", false, json!({})), version("v2", true, json!({}))]);
    let changed = server.merge(&name, json!({"spec": {"versions": two}})).await.ok();
    assert_eq!(changed["status"]["storedVersions"], json!(["v1", "v2"]));
    let only = json!([version("v2", true, json!({}))]);
    let message = server.merge(&name, json!({"spec": {"versions": only}})).await.refused(422);
    assert!(
        message.contains("status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions"),
        "{message}"
    );
    let status = format!("{name}/status");
    server.merge(&status, json!({"status": {"storedVersions": ["v2"]}})).await.ok();
    server.merge(&name, json!({"spec": {"versions": only}})).await.ok();
    assert_eq!(server.get(&path("v1")).await.code, 404);
}

#[tokio::test]
async fn terminating_condition_reports_deletion_of_objects() {
    let server = Server::start().await;
    let versions = json!([version("v1", true, json!({}))]);
    // Another finalizer holds the definition, so that its last status can be read.
    let mut first = definition("example.com", "firsts", "First", versions.clone());
    first["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let mut second = definition("example.com", "seconds", "First", versions);
    second["metadata"]["finalizers"] = first["metadata"]["finalizers"].clone();
    let expected = [
        (second, ("False", "NeverEstablished", "resource was never established")),
        (first.clone(), ("False", "InstanceDeletionCompleted", "removed all instances")),
    ];
    server.create(DEFINITIONS, &first).await.ok();
    server.create(DEFINITIONS, &expected[0].0).await.ok();
    let object = json!({"apiVersion": "example.com/v1", "kind": "First", "metadata": {"name": "a"}});
    server.create("/apis/example.com/v1/namespaces/default/firsts", &object).await.ok();
    for (definition, expected) in expected {
        let name = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().unwrap());
        server.delete(&name).await.ok();
        let ended = |answer: &crate::server::Answer| {
            answer.body["metadata"]["finalizers"] == json!(["example.com/hold"])
        };
        let left = server.eventually(&name, ended).await.ok();
        assert_eq!(condition(&left, "Terminating"), expected);
        server.merge(&name, json!({"metadata": {"finalizers": null}})).await.ok();
        assert_eq!(server.get(&name).await.code, 404);
    }
}

#[tokio::test]
async fn openapi_v2_and_v3_describe_a_custom_kind() {
    let server = Server::start().await;
    let spec = json!({
        "size": {"type": "integer", "default": 3, "nullable": true, "oneOf": [{"minimum": 1}, {"maximum": -1}]},
        "share": {"x-kubernetes-int-or-string": true},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}},
    });
    let mut served = version("v1", true, spec);
    served["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] =
        json!([{"rule": "self.size < 100"}]);
    served["selectableFields"] = json!([{"jsonPath": ".spec.free.a"}]);
    server.create(DEFINITIONS, &widgets(json!([served]))).await.ok();

    let whole = server.get("/openapi/v3/apis/example.com/v1").await.ok();
    let spec = &whole["components"]["schemas"]["com.example.v1.Widget"]["properties"]["spec"];
    assert_eq!(spec["x-kubernetes-validations"], json!([{"rule": "self.size < 100"}]));
    assert_eq!(spec["properties"]["size"]["oneOf"], json!([{"minimum": 1}, {"maximum": -1}]));
    assert_eq!(spec["properties"]["size"]["nullable"], true);
    assert_eq!(spec["properties"]["free"]["properties"], json!({"a": {"type": "string"}}));
    let selectable = json!([{"fieldPath": "spec.free.a"}]);
    let published = &whole["components"]["schemas"]["com.example.v1.Widget"];
    assert_eq!(published["x-kubernetes-selectable-fields"], selectable);
    let list = &whole["components"]["schemas"]["com.example.v1.WidgetList"];
    assert_eq!(list["description"], "WidgetList is a list of Widget");

    // OpenAPI v2 cannot express all of it, and its clients drop what it does not name.
    let plain = server.get("/openapi/v2").await.ok();
    let widget = &plain["definitions"]["com.example.v1.Widget"];
    let gvk = json!([{"group": "example.com", "kind": "Widget", "version": "v1"}]);
    assert_eq!(widget["x-kubernetes-group-version-kind"], gvk);
    assert_eq!(widget["x-kubernetes-selectable-fields"], selectable);
    let properties = &widget["properties"]["spec"]["properties"];
    assert_eq!(properties["size"].get("oneOf"), None, "{properties}");
    assert_eq!(properties["size"].get("nullable"), None, "{properties}");
    assert_eq!(properties["share"].get("type"), None, "{properties}");
    assert_eq!(properties["free"].get("properties"), None, "{properties}");
    assert_eq!(properties["free"]["x-kubernetes-preserve-unknown-fields"], true, "{properties}");
}

#[tokio::test]
async fn openapi_v2_names_no_property_of_a_kind_that_preserves_unknown_fields() {
    let server = Server::start().await;
    let mut served = version("v1", true, json!({}));
    served["schema"] =
        json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    server.create(DEFINITIONS, &widgets(json!([served]))).await.ok();
    let v2 = server.get("/openapi/v2").await.ok();
    let gvk = json!([{"group": "example.com", "kind": "Widget", "version": "v1"}]);
    // kubectl refuses every field beside those that are named.
    assert_eq!(
        v2["definitions"]["com.example.v1.Widget"],
        json!({"type": "object", "x-kubernetes-group-version-kind": gvk})
    );
}

#[tokio::test]
async fn invalid_or_costly_cel_rules_are_refused_by_field_path() {
    let server = Server::start().await;
    let of = |rule: &str| {
        let names = json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [{"rule": rule}]});
        widgets(json!([version("v1", true, json!({"names": names}))]))
    };
    let place =
        "spec.validation.openAPIV3Schema.properties[spec].properties[names].x-kubernetes-validations[0].rule";
    for (rule, told) in [
        (
            "self.all(a, self.all(b, self.all(c, a == b || b == c)))",
            "estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding \
             maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
        ),
        (
            "self.size() == 'one'",
            "compilation failed: ERROR: <input>:1:13: found no matching overload for '_==_' applied to '(int, string)'",
        ),
        ("oldSelf.", "compilation failed: ERROR: <input>:1:9: Syntax error"),
    ] {
        let message = server.create(DEFINITIONS, &of(rule)).await.refused(422);
        assert!(message.contains(place) && message.contains(told), "{message}");
    }
    server.create(DEFINITIONS, &of("self.all(name, name.startsWith('a'))")).await.ok();
    let wrong = widget("v1", "w", json!({"names": ["a", "b"]}));
    assert_eq!(
        server.create(&path("v1"), &wrong).await.refused(422),
        "Widget.example.com \"w\" is invalid: spec.names: Invalid value: failed rule: \
         self.all(name, name.startsWith('a'))"
    );
}
