//! Subresources of pods: binding, and the choice of a container.

use http::Response;
use orlop_api::{
    field_error::{self, FieldError, FieldPath},
    group_version::{GroupResource, GroupVersionKind},
    names::NameRule,
    object_meta,
    status::Status,
};
use serde_json::{Value, json};

use crate::{
    endpoints::{Request, admission, answer, decoder, update},
    http::{body::Body, query::Query},
    object::is_terminating,
    request::options::WriteOptions,
};

/// Binds a pod to a node. `pod` is the request for the pod's subresource, which `request` may be itself.
pub(super) async fn bind(request: &Request, pod: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "CreateOptions")?;
    let kind = GroupVersionKind::new("", "v1", "Binding");
    let mut binding = decoder::decode_as(request, &request.body, &kind, options.field_validation)?;
    admission::mutate_virtual(request, &mut binding).await?;
    let node = binding.pointer("/target/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if object_meta::text(object_meta::of(&binding), "name") != pod.attributes.name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    let errors = check_target(&binding, &node);
    if !errors.is_empty() {
        return Err(Status::plain(field_error::aggregate(&errors)));
    }
    admission::validate_virtual(request, &binding).await?;
    let copied = |field: &str| object_meta::of(&binding).get(field).and_then(Value::as_object).cloned();
    let (annotations, labels) = (copied("annotations"), copied("labels"));
    let _bound = update::change(pod, options.dry_run, |old| {
        check_bindable(pod, &binding, old)?;
        let mut object = old.clone();
        object["spec"]["nodeName"] = node.clone().into();
        if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
            // Stale: the scheduler's nomination is done.
            status.remove("nominatedNodeName");
        }
        for (key, value) in annotations.iter().flatten() {
            object["metadata"]["annotations"][key] = value.clone();
        }
        for (key, value) in labels.iter().flatten() {
            object["metadata"]["labels"][key] = value.clone();
        }
        set_condition(
            &mut object,
            &json!({"type": "PodScheduled", "status": "True",
            "lastProbeTime": null, "lastTransitionTime": crate::object::now().to_string()}),
        );
        Ok(object)
    })
    .await?;
    answer::object(
        request,
        201,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
        }),
    )
}

/// Returns Conflict if a pod cannot be bound, or is not the one that a binding names by UID and resourceVersion.
fn check_bindable(request: &Request, binding: &Value, pod: &Value) -> Result<(), Status> {
    let name = &request.attributes.name;
    let text = |object: &Value, field: &str| object_meta::text(object_meta::of(object), field).to_owned();
    for (field, told) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, found) = (text(binding, field), text(pod, field));
        if !wanted.is_empty() && wanted != found {
            let resource = request.kind.group_resource();
            return Err(Status::conflict_precondition(&resource, name, told, &wanted, &found));
        }
    }
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    let why = if is_terminating(pod) {
        format!("pod {name} is being deleted, cannot be assigned to a host")
    } else if !node.is_empty() {
        format!("pod {name} is already assigned to node {node:?}")
    } else if gates.is_some_and(|gates| !gates.is_empty()) {
        format!("pod {name} has non-empty .spec.schedulingGates")
    } else {
        return Ok(());
    };
    Err(Status::conflict(&GroupResource::new("", "pods/binding"), name, &why))
}

/// Sets a condition of an object's status.
pub(super) fn set_condition(object: &mut Value, condition: &Value) {
    let mut conditions =
        object.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    conditions.retain(|known| known.get("type") != condition.get("type"));
    conditions.push(condition.clone());
    object["status"]["conditions"] = conditions.into();
}

/// Validates the target of a binding.
fn check_target(binding: &Value, node: &str) -> Vec<FieldError> {
    let path = FieldPath::root("target");
    let kind = binding.pointer("/target/kind").and_then(Value::as_str).unwrap_or_default();
    let mut errors = Vec::new();
    let is_node = matches!(kind, "" | "Node");
    if !is_node {
        errors.push(FieldError::not_supported(&path.child("kind"), kind, &["Node", "<empty>"]));
    }
    if node.is_empty() {
        errors.push(FieldError::required(&path.child("name"), ""));
    } else if is_node {
        let problems = NameRule::Subdomain.check(node).into_iter();
        errors.extend(problems.map(|why| FieldError::invalid(&path.child("name"), node, why)));
    }
    errors
}

/// Returns the container that a request names, or the only one.
pub(super) fn container(query: &Query, pod: &Value) -> Result<String, Status> {
    let name = object_meta::text(object_meta::of(pod), "name");
    let named = |list: &str| {
        let containers = pod.pointer(list).and_then(Value::as_array).into_iter().flatten();
        containers.filter_map(|container| container.get("name")?.as_str())
    };
    let all: Vec<&str> = ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"]
        .into_iter()
        .flat_map(named)
        .collect();
    match query.text("container") {
        "" if named("/spec/containers").count() == 1 => {
            Ok(named("/spec/containers").next().unwrap_or_default().to_owned())
        }
        "" => Err(Status::bad_request(format!(
            "a container name must be specified for pod {name}, choose one of: [{}]",
            all.join(" ")
        ))),
        container if all.contains(&container) => Ok(container.to_owned()),
        container => Err(Status::bad_request(format!("container {container} is not valid for pod {name}"))),
    }
}
