//! Access to devices: admin access needs a label of the namespace, and parts of a claim's status need permissions of
//! their own.

use std::collections::BTreeSet;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    status::Status,
};
use serde_json::Value;

use super::Request;
use crate::{
    auth::{Decision, authorizer::forbidden},
    request::{Attributes, Subresource, Verb},
};

const GROUP: &str = "resource.k8s.io";
const ADMIN_LABEL: &str = "resource.kubernetes.io/admin-access";

/// Returns the errors of a ResourceClaim or ResourceClaimTemplate that asks for more than its writer may have. `old` is
/// absent on create.
pub(super) async fn check(
    request: &Request,
    object: &Value,
    old: Option<&Value>,
) -> Result<Vec<FieldError>, Status> {
    if request.kind.gvk.group != GROUP {
        return Ok(Vec::new());
    }
    // Boxed: the future of every other write would be as large as theirs.
    match (request.kind.resource.as_str(), request.attributes.subresource_name(), old) {
        ("resourceclaims", "", None) => {
            Box::pin(check_requests(request, object.pointer("/spec/devices/requests"))).await
        }
        ("resourceclaimtemplates", "", None) => {
            Box::pin(check_requests(request, object.pointer("/spec/spec/devices/requests"))).await
        }
        ("resourceclaims", "status", Some(old)) => Box::pin(check_status(request, object, old)).await,
        _ => Ok(Vec::new()),
    }
}

fn items(list: Option<&Value>) -> &[Value] {
    list.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Requires the label of the namespace for requests with admin access.
async fn check_requests(request: &Request, requests: Option<&Value>) -> Result<Vec<FieldError>, Status> {
    let asks = |request: &Value| request.pointer("/exactly/adminAccess") == Some(&Value::Bool(true));
    match items(requests).iter().position(asks) {
        None => Ok(Vec::new()),
        Some(index) => {
            let path = FieldPath::root("spec").child("devices").child("requests").index(index);
            check_label(request, &path.child("adminAccess")).await
        }
    }
}

async fn check_label(request: &Request, path: &FieldPath) -> Result<Vec<FieldError>, Status> {
    let objects = &request.cluster.objects;
    let kinds = objects.registry.kinds();
    let labels = match kinds.get("", "v1", "namespaces") {
        Some(kind) => {
            objects.object(kind, "", &request.attributes.namespace).await?["metadata"]["labels"].take()
        }
        None => Value::Null,
    };
    if labels.get(ADMIN_LABEL).and_then(Value::as_str) == Some("true") {
        return Ok(Vec::new());
    }
    let detail = format!(
        "admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"
    );
    Ok(vec![FieldError::forbidden(path, detail)])
}

async fn check_status(request: &Request, object: &Value, old: &Value) -> Result<Vec<FieldError>, Status> {
    const RESULTS: &str = "/status/allocation/devices/results";
    let is_admin = |result: &Value| result.get("adminAccess") == Some(&Value::Bool(true));
    let path = FieldPath::root("status");
    let mut errors = Vec::new();
    if !items(old.pointer(RESULTS)).iter().any(is_admin)
        && let Some(index) = items(object.pointer(RESULTS)).iter().position(is_admin)
    {
        let path = path.child("allocation").child("devices").child("results").index(index);
        errors.extend(check_label(request, &path.child("adminAccess")).await?);
    }
    errors.extend(check_binding(request, object, old, &path.child("allocation")).await);
    if object.pointer("/status/allocation").is_some_and(|allocation| !allocation.is_null()) {
        errors.extend(check_drivers(request, object, old, &path.child("devices")).await);
    }
    Ok(errors)
}

/// Requires the permission to bind claims for changes of the allocation and its consumers.
async fn check_binding(
    request: &Request,
    object: &Value,
    old: &Value,
    path: &FieldPath,
) -> Option<FieldError> {
    let part = |of: &Value, name: &str| {
        let part = of.pointer(&format!("/status/{name}")).cloned().unwrap_or_default();
        if part.as_array().is_some_and(Vec::is_empty) { Value::Null } else { part }
    };
    if ["allocation", "reservedFor"].into_iter().all(|name| part(object, name) == part(old, name)) {
        return None;
    }
    let verb = &request.attributes.verb;
    let why = refusal(request, verb.clone(), "binding", "", "").await?;
    Some(FieldError::forbidden(
        path,
        format!(
            "changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", \
             verb=\"{verb}\" permission: {why}"
        ),
    ))
}

/// Requires permissions for drivers whose devices have another status.
async fn check_drivers(request: &Request, object: &Value, old: &Value, path: &FieldPath) -> Vec<FieldError> {
    let user = &request.attributes.user;
    let is_associated = allocated_node(object).is_some_and(|node| user.is_on_node(node));
    let prefixes: &[&str] =
        if is_associated { &["associated-node", "arbitrary-node"] } else { &["arbitrary-node"] };
    let verbs: Vec<String> =
        prefixes.iter().map(|prefix| format!("{prefix}:{}", request.attributes.verb)).collect();
    let mut errors = Vec::new();
    for driver in modified_drivers(object, old) {
        let mut first = None;
        for verb in &verbs {
            let namespace = &request.attributes.namespace;
            match refusal(request, Verb::from(verb.as_str()), "driver", namespace, driver).await {
                None => {
                    first = None;
                    break;
                }
                Some(why) => first = first.or(Some(why)),
            }
        }
        if let Some(why) = first {
            let detail = format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{}]\" permission: {why}",
                verbs.join(" ")
            );
            errors.push(FieldError::forbidden(path, detail));
        }
    }
    errors
}

/// Returns why the user may not use a verb on a part of claims.
async fn refusal(
    request: &Request,
    verb: Verb,
    subresource: &str,
    namespace: &str,
    name: &str,
) -> Option<String> {
    let attributes = Attributes {
        verb,
        subresource: Some(Subresource::from(subresource)),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        ..(*request.attributes).clone()
    };
    match request.cluster.authorizer().authorize(&attributes).await {
        Decision::Allow(_) => None,
        Decision::Deny(reason) | Decision::NoOpinion(reason) => Some(forbidden(&attributes, &reason).message),
    }
}

/// Returns drivers with devices whose status was added, changed or removed.
fn modified_drivers<'a>(object: &'a Value, old: &'a Value) -> BTreeSet<&'a str> {
    const IDENTITY: [&str; 4] = ["driver", "pool", "device", "shareID"];
    fn devices(of: &Value) -> &[Value] {
        items(of.pointer("/status/devices"))
    }
    fn identity(device: &Value) -> [&str; 4] {
        IDENTITY.map(|field| device.get(field).and_then(Value::as_str).unwrap_or_default())
    }
    let changed = |of: &'a Value, other: &'a Value| {
        let is_kept = |device: &Value| {
            devices(other).iter().any(|other| identity(other) == identity(device) && other == device)
        };
        devices(of).iter().filter(move |device| !is_kept(device)).map(|device| identity(device)[0])
    };
    changed(object, old).chain(changed(old, object)).collect()
}

/// Returns the one node that an allocation is for.
fn allocated_node(claim: &Value) -> Option<&str> {
    let [term] = items(claim.pointer("/status/allocation/nodeSelector/nodeSelectorTerms")) else {
        return None;
    };
    let [field] = items(term.get("matchFields")) else { return None };
    let text = |name: &str| field.get(name).and_then(Value::as_str);
    let [node] = items(field.get("values")) else { return None };
    let is_name = items(term.get("matchExpressions")).is_empty()
        && text("key") == Some("metadata.name")
        && text("operator") == Some("In");
    node.as_str().filter(|_| is_name)
}
