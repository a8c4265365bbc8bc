//! Admission policies through the whole server.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod audit;
mod budgets;
mod mutating;
mod params;
#[path = "../support/mod.rs"]
mod support;
mod validating;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use orlop_api::user::UserInfo;
use orlop_server::{
    admission::{Settings, chain},
    auth::issuer::Issuer,
    chain::Chain,
    cluster::Cluster,
    registry::Kinds,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};
use support::{call, create, started};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Starts a server with the plugins of policies.
async fn server() -> Chain {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap());
    let names: Vec<&'static str> =
        chain::defaults().into_iter().filter(|name| name.ends_with("AdmissionPolicy")).collect();
    assert_eq!(names, ["MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"]);
    started(cluster.with_admission_plugins(&names, Settings::default()).unwrap()).await
}

/// Rules for all operations on a resource of the core group.
fn rules(operations: &[&str], resources: &[&str]) -> Value {
    json!([{"operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}])
}

/// A policy for config maps, with these fields.
fn policy(kind: &str, name: &str, spec: Value) -> Value {
    let operations: &[&str] = if kind.starts_with("Mutating") { &["CREATE", "UPDATE"] } else { &["*"] };
    let mut whole = json!({"matchConstraints": {"resourceRules": rules(operations, &["configmaps"])}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": whole})
}

fn binding(kind: &str, name: &str, policy: &str, spec: Value) -> Value {
    let mut whole = json!({"policyName": policy});
    if kind.starts_with("Validating") {
        whole["validationActions"] = json!(["Deny"]);
    }
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": whole})
}

/// Creates a validating policy `p` and its binding `b`.
async fn validate(chain: &Chain, spec: Value, bound: Value) {
    let object = policy("ValidatingAdmissionPolicy", "p", spec);
    create(chain, &format!("{GROUP}/validatingadmissionpolicies"), &object).await;
    let object = binding("ValidatingAdmissionPolicyBinding", "b", "p", bound);
    create(chain, &format!("{GROUP}/validatingadmissionpolicybindings"), &object).await;
}

/// Creates a mutating policy of a name and its binding.
async fn mutate(chain: &Chain, name: &str, spec: Value, bound: Value) {
    let object = policy("MutatingAdmissionPolicy", name, spec);
    create(chain, &format!("{GROUP}/mutatingadmissionpolicies"), &object).await;
    let object = binding("MutatingAdmissionPolicyBinding", name, name, bound);
    create(chain, &format!("{GROUP}/mutatingadmissionpolicybindings"), &object).await;
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

/// Creates a config map. Returns the code and the message of a refusal.
async fn try_create(chain: &Chain, name: &str, data: Value) -> (u16, String) {
    let (code, answer) = call(chain, "POST", MAPS, Some(&config_map(name, data))).await;
    (code, answer["message"].as_str().unwrap_or_default().to_owned())
}

/// Sends a request as a user, with a JSON body. Returns code, warnings and answer.
async fn call_as(
    chain: &Chain,
    user: &UserInfo,
    method: &str,
    path: &str,
    object: Option<&Value>,
) -> (u16, Vec<String>, Value) {
    let body: Bytes = object.map(Value::to_string).unwrap_or_default().into();
    let mut request = Request::builder().method(method).uri(path);
    if !body.is_empty() {
        request = request.header("content-type", "application/json");
    }
    let response = chain.answer(request.body(Full::new(body)).unwrap(), Some(user)).await;
    let (parts, body) = response.into_parts();
    let warnings = parts.headers.get_all("warning").iter().map(|value| value.to_str().unwrap().to_owned());
    let warnings = warnings.collect();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), warnings, serde_json::from_slice(&body).unwrap_or_default())
}
