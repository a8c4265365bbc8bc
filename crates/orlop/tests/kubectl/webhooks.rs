//! Admission webhooks as kubectl sees them.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{
    hook::{Hook, Reply},
    support::Server,
};

/// A webhook in a runtime of its own, until dropped.
struct RunningHook {
    hook: Hook,
    _runtime: tokio::runtime::Runtime,
}

impl RunningHook {
    fn start(answer: impl Fn(&Value) -> Value + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let reply = move |review: &Value| {
            let mut response = answer(&review["request"]);
            response["uid"] = review["request"]["uid"].clone();
            let review =
                json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response});
            Reply::Json(review)
        };
        let hook = runtime.block_on(Hook::start(&[], reply));
        Self { hook, _runtime: runtime }
    }

    /// Returns a configuration that sends writes of a resource to the webhook.
    fn configuration(&self, kind: &str, name: &str, group: &str, resource: &str) -> Value {
        let url = format!("https://127.0.0.1:{}/admit", self.hook.port);
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name},
            "webhooks": [{
                "name": format!("{name}.example.com"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": url, "caBundle": self.hook.ca_bundle},
                "rules": [{"operations": ["*"], "apiGroups": [group], "apiVersions": ["*"],
                    "resources": [resource, format!("{resource}/*")]}],
            }],
        })
    }
}

#[test]
fn webhooks_deny_change_and_warn() {
    let server = Server::start();
    let deny = RunningHook::start(|request| {
        let is_bad = |object: &Value| object["data"]["verdict"] == "bad";
        if is_bad(&request["object"]) {
            let status = json!({"code": 403, "reason": "Forbidden", "message": "the verdict is bad"});
            return json!({"allowed": false, "status": status});
        }
        json!({"allowed": true, "warnings": ["somebody is watching"]})
    });
    let label = RunningHook::start(|request| {
        let is_labelled = request["object"].pointer("/metadata/labels/seen").is_some();
        if request["operation"] != "CREATE" || is_labelled {
            return json!({"allowed": true});
        }
        let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]);
        json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch.to_string())})
    });
    let apply = |configuration: &Value| server.with_input(&["apply", "-f", "-"], &configuration.to_string());
    apply(&deny.configuration("ValidatingWebhookConfiguration", "deny", "", "configmaps"));
    apply(&label.configuration("MutatingWebhookConfiguration", "label", "", "configmaps"));
    assert!(server.kubectl(&["get", "validatingwebhookconfigurations"]).contains("deny   1"));

    let created = server.kubectl(&["create", "configmap", "good", "--from-literal=verdict=good"]);
    assert!(created.contains("Warning: somebody is watching"), "{created}");
    assert_eq!(
        server.kubectl(&["get", "configmap", "good", "-o", "jsonpath={.metadata.labels.seen}"]),
        "yes"
    );
    let refused = server.refused(&["create", "configmap", "bad", "--from-literal=verdict=bad"], "");
    assert!(
        refused.contains("admission webhook \"deny.example.com\" denied the request: the verdict is bad"),
        "{refused}"
    );
    let patch = r#"{"data": {"verdict": "bad"}}"#;
    let refused = server.refused(&["patch", "configmap", "good", "--type=merge", "-p", patch], "");
    assert!(refused.contains("Error from server (Forbidden): admission webhook"), "{refused}");
    let dry_run =
        ["create", "configmap", "bad", "--from-literal=verdict=bad", "--dry-run=server", "-o", "name"];
    assert!(server.refused(&dry_run, "").contains("denied the request"));
    server.kubectl(&["delete", "configmap", "good"]);
    let operations: Vec<Value> =
        deny.hook.take_reviews().iter().map(|review| review["request"]["operation"].clone()).collect();
    assert_eq!(operations, ["CREATE", "CREATE", "UPDATE", "CREATE", "DELETE"]);

    // A webhook that is gone fails closed, until its configuration is deleted.
    let port = deny.hook.port;
    drop(deny);
    let refused = server.refused(&["create", "configmap", "other"], "");
    let expected = format!(
        "failed calling webhook \"deny.example.com\": failed to call webhook: Post \
         \"https://127.0.0.1:{port}/admit?timeout=10s\": "
    );
    assert!(refused.contains("Internal error occurred: ") && refused.contains(&expected), "{refused}");
    server.kubectl(&["delete", "validatingwebhookconfiguration", "deny"]);
    server.kubectl(&["create", "configmap", "other"]);
}

#[test]
fn webhooks_see_scales_and_connections() {
    let server = Server::start();
    let hook = RunningHook::start(|request| match request["subResource"].as_str() {
        Some("scale") if request["object"]["spec"]["replicas"] == 7 => {
            json!({"allowed": false, "status": {"message": "seven is too many"}})
        }
        Some("exec") => {
            let command = request["object"]["command"].to_string();
            let (kind, tty) = (request["kind"]["kind"].clone(), request["object"]["stdout"].clone());
            json!({"allowed": false, "status": {"message": format!("{kind} {command} {tty}")}})
        }
        _ => json!({"allowed": true}),
    });
    for (name, group, resource) in [("scales", "apps", "deployments"), ("pods", "", "pods")] {
        let configuration = hook.configuration("ValidatingWebhookConfiguration", name, group, resource);
        server.with_input(&["apply", "-f", "-"], &configuration.to_string());
    }
    server.kubectl(&["create", "deployment", "web", "--image=local/web", "--replicas=0"]);
    server.kubectl(&["scale", "deployment", "web", "--replicas=3"]);
    let refused = server.refused(&["scale", "deployment", "web", "--replicas=7"], "");
    assert!(refused.contains("denied the request: seven is too many"), "{refused}");
    assert_eq!(server.kubectl(&["get", "deployment", "web", "-o", "jsonpath={.spec.replicas}"]), "3");

    server.kubectl(&["run", "p", "--image=local/p"]);
    let status = r#"{"status": {"phase": "Running", "containerStatuses": [{"name": "p", "ready": true,
        "restartCount": 0, "image": "local/p", "imageID": "", "state": {"running": {}}}]}}"#;
    server.kubectl(&["patch", "pod", "p", "--subresource=status", "--type=merge", "-p", status]);
    let refused = server.refused(&["exec", "p", "--", "ls", "-l"], "");
    assert!(refused.contains(r#"denied the request: "PodExecOptions" ["ls","-l"] true"#), "{refused}");
}
