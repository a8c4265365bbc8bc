//! What is asked of pods beyond their objects. There is no node here: what only a node can answer is
//! refused as a server without nodes refuses it.

use http::Response;
use orlop_api::{
    group_version::{GroupResource, GroupVersionKind},
    object_meta,
    status::Status,
};
use serde_json::{Value, json};

use crate::{
    body::Body,
    query::WriteOptions,
    verbs::{Request, answer, incoming, update},
};

/// Puts a pod on a node.
pub(super) async fn bind(request: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "CreateOptions")?;
    let kind = GroupVersionKind::new("", "v1", "Binding");
    let binding = incoming::decoded(request, &request.body, &kind, options.field_validation)?;
    let node = binding.pointer("/target/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    if node.is_empty() {
        return Err(Status::bad_request("the binding has no target node"));
    }
    let annotations = object_meta::of(&binding).get("annotations").and_then(Value::as_object).cloned();
    let _bound = update::change(request, options.dry_run, |old| {
        let bound = old.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
        if !bound.is_empty() {
            return Err(Status::conflict(
                &GroupResource::new("", "pods/binding"),
                &request.about.name,
                &format!("pod {} is already assigned to node {bound:?}", request.about.name),
            ));
        }
        let mut object = old.clone();
        object["spec"]["nodeName"] = node.clone().into();
        for (key, value) in annotations.iter().flatten() {
            object["metadata"]["annotations"][key] = value.clone();
        }
        set_condition(
            &mut object,
            &json!({"type": "PodScheduled", "status": "True",
            "lastProbeTime": null, "lastTransitionTime": crate::cluster::now().to_string()}),
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

/// Sets a condition of an object's status, in place of the one of its type.
pub(super) fn set_condition(object: &mut Value, condition: &Value) {
    let mut conditions =
        object.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    conditions.retain(|known| known.get("type") != condition.get("type"));
    conditions.push(condition.clone());
    object["status"]["conditions"] = conditions.into();
}

/// A pod that runs nowhere has said nothing.
pub(super) async fn log(request: &Request) -> Result<Response<Body>, Status> {
    let about = &request.about;
    let pod = request.cluster.object(&request.kind, &about.namespace, &about.name).await?;
    match pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default() {
        "" => Ok(super::text("")),
        node => Err(Status::internal(&format!(
            "Get the log of {} from node {node}: no node is reachable",
            about.name
        ))),
    }
}

/// Why nothing can be run in a pod.
pub(super) async fn without_a_node(request: &Request) -> Status {
    let about = &request.about;
    if request.query.get("dryRun").is_some() {
        return Status::bad_request("dryRun is not supported");
    }
    match request.cluster.get(&request.kind, &about.namespace, &about.name).await {
        Err(status) => status,
        Ok(_) => Status::bad_request(format!("pod {} does not have a host assigned", about.name)),
    }
}
