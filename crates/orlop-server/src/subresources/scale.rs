//! Scale: how many replicas, in a form that is the same for every kind that has them.

use http::Response;
use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupVersionKind,
    labels, object_meta,
    patch::{JsonPatch, merge_patch},
    status::Status,
};
use serde_json::{Value, json};

use crate::{
    body::Body,
    negotiation::content_type,
    query::WriteOptions,
    registry::Kind,
    verbs::{Request, answer, incoming, update},
};

fn scale_kind() -> GroupVersionKind {
    GroupVersionKind::new("autoscaling", "v1", "Scale")
}

pub(super) async fn get(request: &Request) -> Result<Response<Body>, Status> {
    let about = &request.about;
    let object = request.cluster.object(&request.kind, &about.namespace, &about.name).await?;
    let (scale, says) = scale_of(&request.kind, &object)?;
    match request.kind.hooks.scale() {
        Some(paths) if !says => Err(Status::internal(&paths.missing_replicas())),
        _ => answer::object(request, 200, scale),
    }
}

pub(super) async fn update(request: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "UpdateOptions")?;
    let wanted = incoming::decoded(request, &request.body, &scale_kind(), options.field_validation)?;
    let name = object_meta::text(object_meta::of(&wanted), "name");
    if name != request.about.name {
        return Err(Status::name_mismatch(name, &request.about.name));
    }
    write(request, &options, |_| Ok(wanted.clone())).await
}

pub(super) async fn patch(request: &Request) -> Result<Response<Body>, Status> {
    let is_apply = content_type(&request.headers) == "application/apply-patch+yaml";
    let options = WriteOptions::of_patch(&request.query, is_apply)?;
    let decoded = || {
        let decoded = orlop_api::decode::yaml_or_json(&request.body);
        decoded.map(|decoded| decoded.value).map_err(|error| Status::bad_request(error.to_string()))
    };
    match content_type(&request.headers) {
        "application/json-patch+json" => {
            let patch = JsonPatch::decode(&request.body)?;
            write(request, &options, |scale| Ok(patch.apply(scale)?)).await
        }
        // A scale has no lists, so that all of these come to the same.
        "application/merge-patch+json"
        | "application/strategic-merge-patch+json"
        | "application/apply-patch+yaml" => {
            let patch = decoded()?;
            write(request, &options, |scale| Ok(merge_patch(scale, &patch)?)).await
        }
        _ => Err(Status::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ])),
    }
}

/// Writes what `make` makes of the present scale.
async fn write(
    request: &Request,
    options: &WriteOptions,
    make: impl Fn(&Value) -> Result<Value, Status>,
) -> Result<Response<Body>, Status> {
    let manager = options.manager(request.user_agent());
    let written = update::change(request, options.dry_run, |old| {
        let (present, says) = scale_of(&request.kind, old)?;
        let scale = make(&present)?;
        let paths = request.kind.hooks.scale();
        if let Some(paths) = paths
            && !says
            && scale.pointer("/spec/replicas").is_none()
        {
            return Err(Status::bad_request(paths.empty_replicas()));
        }
        let replicas = replicas(request, &scale)?;
        let mut object = old.clone();
        match paths {
            Some(paths) => paths.write(&mut object, replicas).map_err(|why| Status::plain(&why))?,
            None => object["spec"]["replicas"] = replicas.into(),
        }
        let version = object_meta::text(object_meta::of(&scale), "resourceVersion");
        object["metadata"]["resourceVersion"] =
            if scale.pointer("/metadata/resourceVersion") == present.pointer("/metadata/resourceVersion") {
                object["metadata"]["resourceVersion"].take()
            } else {
                version.into()
            };
        update::finish(request, old, object, Some(&manager))
    })
    .await?;
    answer::object(request, 200, scale_of(&request.kind, &written.into_object(&request.kind).await?)?.0)
}

/// How many replicas a scale asks for.
fn replicas(request: &Request, scale: &Value) -> Result<i32, Status> {
    let asked = scale.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(0);
    if asked < 0 {
        let path = FieldPath::root("spec").child("replicas");
        let error = FieldError::invalid(&path, asked, "must be greater than or equal to 0");
        return Err(Status::invalid(&scale_kind().group_kind(), &request.about.name, &[error]));
    }
    i32::try_from(asked).map_err(|_| {
        let why = format!(
            "json: cannot unmarshal number {asked} into Go struct field ScaleSpec.spec.replicas of type int32"
        );
        Status::cannot_decode(&scale_kind(), "Scale", &why)
    })
}

/// The scale of an object, and whether the object says how many replicas it wants.
fn scale_of(kind: &Kind, object: &Value) -> Result<(Value, bool), Status> {
    match kind.hooks.scale() {
        Some(paths) => paths.read(object).map_err(|why| Status::plain(&why)),
        None => Ok((builtin_scale_of(object), true)),
    }
}

/// The scale of an object that keeps it where most kinds do.
fn builtin_scale_of(object: &Value) -> Value {
    let meta = object_meta::of(object);
    let kept = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
    let metadata: serde_json::Map<String, Value> =
        kept.iter().filter_map(|field| Some(((*field).to_owned(), meta.get(*field)?.clone()))).collect();
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let mut status = json!({"replicas": number("/status/replicas")});
    let selector = match object.pointer("/spec/selector") {
        // Replication controllers select by a plain map.
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
