//! Valid requests to begin with.

use std::net::SocketAddr;

use anyhow::ensure;
use rand::{Rng as _, rngs::SmallRng};
use serde_json::{Value, json};

use crate::http::{Connection, Request};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Names that objects have: few, so that requests meet.
const NAMES: usize = 4;

/// A collection and an object that fits into it.
fn samples() -> Vec<(&'static str, Value)> {
    let template = json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{
            "name": "c", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}],
            "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"cpu": "100m", "memory": "1Gi"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }], "volumes": [{"name": "v", "emptyDir": {}}]},
    });
    let selector = json!({"matchLabels": {"app": "a"}});
    vec![
        ("/api/v1/namespaces/default/configmaps", object("v1", "ConfigMap", json!({"data": {"a": "b"}}))),
        ("/api/v1/namespaces/default/secrets", object("v1", "Secret", json!({"data": {"a": "Yg=="}}))),
        (
            "/api/v1/namespaces/default/services",
            object(
                "v1",
                "Service",
                json!({"spec": {"selector": {"app": "a"}, "ports": [{"name": "p", "port": 80, "targetPort": "x"}]}}),
            ),
        ),
        ("/api/v1/namespaces/default/pods", object("v1", "Pod", json!({"spec": template["spec"]}))),
        (
            "/apis/apps/v1/namespaces/default/deployments",
            object(
                "apps/v1",
                "Deployment",
                json!({"spec": {"replicas": 1, "selector": selector, "template": template}}),
            ),
        ),
        (
            "/apis/batch/v1/namespaces/default/cronjobs",
            object(
                "batch/v1",
                "CronJob",
                json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": {
                    "restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}}}}),
            ),
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
            object(
                "rbac.authorization.k8s.io/v1",
                "Role",
                json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
            ),
        ),
        (
            "/apis/fuzz.example.com/v1/namespaces/default/lamps",
            object(
                "fuzz.example.com/v1",
                "Lamp",
                json!({"spec": {"watts": 40, "rooms": [{"name": "a", "size": 1}], "tags": {"a": "b"}, "level": "50%"}}),
            ),
        ),
        (DEFINITIONS, definition("fuzz2.example.com")),
    ]
}

fn object(api_version: &str, kind: &str, mut rest: Value) -> Value {
    rest["apiVersion"] = json!(api_version);
    rest["kind"] = json!(kind);
    rest["metadata"] = json!({"name": "x", "labels": {"app": "a"}, "annotations": {"a": "b"}});
    rest
}

fn definition(group: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("lamps.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": "lamps", "singular": "lamp", "kind": "Lamp"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.watts", "statusReplicasPath": ".status.watts"}},
                "additionalPrinterColumns": [{"name": "Watts", "type": "integer", "jsonPath": ".spec.watts"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "x-kubernetes-validations": [
                        {"rule": "!has(self.watts) || self.watts < 1000", "message": "too bright"}],
                        "properties": {
                            "watts": {"type": "integer", "minimum": 0, "default": 5},
                            "level": {"x-kubernetes-int-or-string": true},
                            "tags": {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[a-z]*$"}},
                            "rooms": {"type": "array", "x-kubernetes-list-type": "map",
                                "x-kubernetes-list-map-keys": ["name"],
                                "items": {"type": "object", "required": ["name"], "properties": {
                                    "name": {"type": "string", "maxLength": 10}, "size": {"type": "number"}}}},
                        }},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    })
}

/// Serves the custom kind of the corpus.
pub(crate) fn create_definition(server: SocketAddr, token: &str) -> anyhow::Result<()> {
    let request = Request {
        method: "POST",
        path: DEFINITIONS.to_owned(),
        query: Vec::new(),
        content_type: "application/json".to_owned(),
        accept: "application/json".to_owned(),
        body: definition("fuzz.example.com").to_string().into_bytes(),
    };
    let answer = Connection::open(server)?.send(&request, token)?;
    ensure!(matches!(answer.code, 201 | 409), "{}", String::from_utf8_lossy(&answer.body));
    Ok(())
}

/// Returns a valid request, or one that is refused for good reason.
pub(crate) fn pick(random: &mut SmallRng) -> Request {
    let mut samples = samples();
    let (collection, mut object) = samples.swap_remove(random.random_range(0..samples.len()));
    let name = if collection == DEFINITIONS {
        "lamps.fuzz2.example.com".to_owned()
    } else {
        let name = format!("x{}", random.random_range(0..NAMES));
        object["metadata"]["name"] = json!(name);
        name
    };
    let item = format!("{collection}/{name}");
    let json_type = "application/json";
    let (method, path, content_type, query, body): (_, _, _, &[(&str, &str)], Value) = match random
        .random_range(0..12)
    {
        0..=2 => ("POST", collection.to_owned(), json_type, &[], object),
        3 => ("PUT", item, json_type, &[], object),
        4 => ("PATCH", item, "application/merge-patch+json", &[], object),
        5 => ("PATCH", item, "application/strategic-merge-patch+json", &[], object),
        6 => {
            let query = &[("fieldManager", "fuzz"), ("force", "true")];
            ("PATCH", item, "application/apply-patch+yaml", query, object)
        }
        7 => {
            let patch = json!([
                {"op": "test", "path": "/kind", "value": object["kind"]},
                {"op": "add", "path": "/metadata/labels/x", "value": "y"},
                {"op": "copy", "from": "/metadata/labels", "path": "/metadata/annotations"},
                {"op": "remove", "path": "/metadata/labels/app"},
                {"op": "move", "from": "/metadata/labels/x", "path": "/metadata/labels/z"},
                {"op": "replace", "path": "/metadata/labels", "value": {"app": "b"}},
            ]);
            ("PATCH", item, "application/json-patch+json", &[], patch)
        }
        8 => ("GET", item, json_type, &[], Value::Null),
        9 => ("GET", collection.to_owned(), json_type, &[("limit", "2")], Value::Null),
        10 => {
            ("GET", collection.to_owned(), json_type, &[("watch", "1"), ("timeoutSeconds", "1")], Value::Null)
        }
        _ => ("DELETE", item, json_type, &[], json!({"kind": "DeleteOptions", "apiVersion": "v1"})),
    };
    Request {
        method,
        path,
        query: query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        content_type: content_type.to_owned(),
        accept: json_type.to_owned(),
        body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
    }
}
