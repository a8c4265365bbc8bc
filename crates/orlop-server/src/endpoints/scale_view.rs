//! Objects as scales: the view that the scale subresource, and admission of it, has of them.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupVersionKind,
    labels, object_meta,
    status::Status,
};
use serde_json::{Value, json};

use super::Request;
use crate::registry::Kind;

pub(super) fn scale_kind() -> GroupVersionKind {
    GroupVersionKind::new("autoscaling", "v1", "Scale")
}

/// Sets the replicas of an object to those of a scale.
pub(super) fn set_replicas(request: &Request, object: &mut Value, scale: &Value) -> Result<(), Status> {
    let replicas = replicas(request, scale)?;
    match request.kind.strategy.scale() {
        Some(paths) => paths.write(object, replicas).map_err(|why| Status::plain(&why))?,
        None => object["spec"]["replicas"] = replicas.into(),
    }
    Ok(())
}

/// Returns the replicas of a scale.
fn replicas(request: &Request, scale: &Value) -> Result<i32, Status> {
    let asked = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if asked < 0
        && let Some(paths) = request.kind.strategy.scale()
    {
        // A custom resource is validated as a whole.
        let path = FieldPath::root(paths.spec_replicas_path.as_str());
        let error = FieldError::invalid(&path, asked, "should be a non-negative integer");
        return Err(Status::invalid(&request.kind.group_kind(), &request.attributes.name, &[error]));
    }
    if asked < 0 {
        let path = FieldPath::root("spec").child("replicas");
        let error = FieldError::invalid(&path, asked, "must be greater than or equal to 0");
        return Err(Status::invalid(&scale_kind().group_kind(), &request.attributes.name, &[error]));
    }
    i32::try_from(asked).map_err(|_| {
        let why = format!(
            "json: cannot unmarshal number {asked} into Go struct field ScaleSpec.spec.replicas of type int32"
        );
        Status::cannot_decode(&scale_kind(), "Scale", &why)
    })
}

/// Returns the scale of an object, and true if the object sets its replicas.
pub(super) fn scale_of(kind: &Kind, object: &Value) -> Result<(Value, bool), Status> {
    match kind.strategy.scale() {
        Some(paths) => paths.read(object).map_err(|why| Status::plain(&why)),
        None => Ok((builtin_scale_of(object), true)),
    }
}

/// Returns the scale of an object with replicas at the usual paths.
fn builtin_scale_of(object: &Value) -> Value {
    let meta = object_meta::of(object);
    let fields = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata: serde_json::Map<String, Value> =
        fields.iter().filter_map(|field| Some(((*field).to_owned(), meta.get(*field)?.clone()))).collect();
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let mut status = json!({"replicas": number("/status/replicas")});
    let selector = match object.pointer("/spec/selector") {
        // The selector of a ReplicationController is a plain map.
        Some(Value::Object(map))
            if !map.contains_key("matchLabels") && !map.contains_key("matchExpressions") =>
        {
            labels::Selector::from_label_selector(&json!({"matchLabels": map})).ok()
        }
        Some(selector) => labels::Selector::from_label_selector(selector).ok(),
        None => None,
    };
    if let Some(selector) = selector {
        status["selector"] = selector.to_string().into();
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": number("/spec/replicas")}, "status": status,
    })
}
