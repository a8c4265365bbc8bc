//! Logs of pods. There is no node here: a pod that is not scheduled has an empty log.

use http::Response;
use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::GroupKind,
    status::Status,
    time::Time,
};
use serde_json::Value;

use super::pods;
use crate::{
    endpoints::Request,
    http::{body::Body, query::Query},
};

/// Responds with the log of a pod.
pub(super) async fn get(request: &Request) -> Result<Response<Body>, Status> {
    let attributes = &request.attributes;
    let errors = check(&request.query)?;
    if !errors.is_empty() {
        return Err(Status::invalid(&GroupKind::new("", "PodLogOptions"), &attributes.name, &errors));
    }
    let pod = request.cluster.objects.object(&request.kind, &attributes.namespace, &attributes.name).await?;
    pods::check_container(&request.query, &pod)?;
    match pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default() {
        "" => Ok(super::text("")),
        node => Err(pods::unreachable_node(request, node).await),
    }
}

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
