//! Logs of pods, which their nodes have. A pod that is not scheduled has no content.

use bytes::Bytes;
use http::{HeaderMap, Method, Response};
use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupKind,
    status::Status,
    time::Time,
};
use serde_json::Value;

use super::{nodes, pods};
use crate::{
    endpoints::Request,
    http::{body::Body, query::Query},
    proxy::{Forwarded, forward},
};

/// Responds with the log of a pod.
pub(super) async fn get(request: &Request) -> Result<Response<Body>, Status> {
    let attributes = &request.attributes;
    let errors = check(&request.query)?;
    if !errors.is_empty() {
        return Err(Status::invalid(&GroupKind::new("", "PodLogOptions"), &attributes.name, &errors));
    }
    let pod = request.cluster.objects.object(&request.kind, &attributes.namespace, &attributes.name).await?;
    let container = pods::container(&request.query, &pod)?;
    let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
    if node.is_empty() {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = http::StatusCode::NO_CONTENT;
        return Ok(response);
    }
    let backend = nodes::backend(request, node).await?;
    let options: Vec<(&str, &str)> =
        request.query.iter().filter(|(name, _)| FORWARDED.contains(name)).collect();
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(options).finish();
    let path = format!("/containerLogs/{}/{}/{container}?{query}", attributes.namespace, attributes.name);
    let forwarded =
        Forwarded { method: Method::GET, path, headers: HeaderMap::new(), body: Bytes::new(), upgrade: None };
    let response = forward(&backend, forwarded, None).await?;
    if response.status().is_success() {
        return Ok(response);
    }
    Err(nodes::failure(response).await)
}

/// Options that a node decides about.
const FORWARDED: &[&str] =
    &["follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream"];

/// Validates the options of a log.
fn check(query: &Query) -> Result<Vec<FieldError>, Status> {
    let mut errors = Vec::new();
    let mut at_least = |name: &str, least: i64, why: &str| -> Result<bool, Status> {
        let given = query.number(name)?;
        if let Some(number) = given.filter(|number| *number < least) {
            errors.push(FieldError::invalid(&FieldPath::root(name), number, why));
        }
        Ok(given.is_some())
    };
    at_least("tailLines", 0, "must be greater than or equal to 0")?;
    at_least("limitBytes", 1, "must be greater than 0")?;
    let since_time = query.get("sinceTime").filter(|text| !text.is_empty());
    if let Some(text) = since_time
        && Time::parse(text).is_none()
    {
        return Err(Status::bad_request(format!("{text:?} is not a time")));
    }
    if since_time.is_none() {
        at_least("sinceSeconds", 1, "must be greater than 0")?;
    } else if query.number("sinceSeconds")?.is_some() {
        let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        // Kubernetes names no field here, and formats that so.
        errors.push(FieldError::forbidden(&FieldPath::root("[]"), detail));
    }
    if query.get("stream").is_some() {
        errors.push(FieldError::forbidden(&FieldPath::root("stream"), "may not be specified"));
    }
    Ok(errors)
}
