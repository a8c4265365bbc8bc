//! SubjectAccessReview, SelfSubjectAccessReview, LocalSubjectAccessReview and SelfSubjectRulesReview.

use std::sync::Arc;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    fields::Term,
    group_version::GroupKind,
    labels::{self, Operator, Requirement},
    status::Status,
    user::UserInfo,
};
use serde_json::{Map, Value, json};

use super::Request;
use crate::{
    auth::{
        Access, Decision,
        authorizer::{PathRule, ResourceRule},
    },
    request::{Attributes, Selectors},
};

/// Returns the status of an access review: may its subject, or the requester, do what it asks.
pub(super) async fn review(access: &Access, request: &Request, review: &Value) -> Result<Value, Status> {
    let is_self = request.kind.resource == "selfsubjectaccessreviews";
    let errors = validate(request, review, is_self);
    if !errors.is_empty() {
        // Kubernetes leaves out the kind of the review.
        return Err(Status::invalid(&GroupKind::new("authorization.k8s.io", ""), "", &errors));
    }
    let user = if is_self { request.attributes.user.clone() } else { Arc::new(subject(review)) };
    let attributes = attributes(review, user);
    let evaluation = access.authorizer.evaluate(&attributes).await;
    let error = evaluation_error(evaluation.error(), attributes.selectors.as_deref());
    let (mut status, reason) = match evaluation.decision {
        Decision::Allow(reason) => (json!({"allowed": true}), reason),
        Decision::Deny(reason) => (json!({"allowed": false, "denied": true}), reason),
        Decision::NoOpinion(reason) => (json!({"allowed": false}), reason),
    };
    for (field, text) in [("reason", reason.as_ref()), ("evaluationError", &error)] {
        if !text.is_empty() {
            status[field] = text.into();
        }
    }
    Ok(status)
}

/// Returns the status of a SelfSubjectRulesReview: all that a user may do in a namespace.
pub(super) async fn rules(access: &Access, user: &UserInfo, review: &Value) -> Result<Value, Status> {
    let namespace = review.pointer("/spec/namespace").and_then(Value::as_str).unwrap_or_default();
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let rules = access.authorizer.rules(user, namespace).await;
    let resource = |rule: &ResourceRule| {
        let mut json = json!({"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources});
        if !rule.names.is_empty() {
            json["resourceNames"] = rule.names.clone().into();
        }
        json
    };
    let path = |rule: &PathRule| json!({"verbs": rule.verbs, "nonResourceURLs": rule.paths});
    let mut status = json!({
        "resourceRules": rules.resources.iter().map(resource).collect::<Vec<_>>(),
        "nonResourceRules": rules.paths.iter().map(path).collect::<Vec<_>>(),
        "incomplete": rules.incomplete,
    });
    if !rules.errors.is_empty() {
        status["evaluationError"] = orlop_api::field_error::aggregate(&rules.errors).into();
    }
    Ok(status)
}

/// Returns a field that is present and not null.
fn given<'a>(review: &'a Value, path: &str) -> Option<&'a Value> {
    review.pointer(path).filter(|value| !value.is_null())
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let values = value.and_then(Value::as_array).into_iter().flatten();
    values.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the subject of a SubjectAccessReview.
fn subject(review: &Value) -> UserInfo {
    let text = |path: &str| review.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let extra = review.pointer("/spec/extra").and_then(Value::as_object).into_iter().flatten();
    UserInfo {
        name: text("/spec/user"),
        uid: text("/spec/uid"),
        groups: texts(review.pointer("/spec/groups")),
        extra: extra.map(|(key, values)| (key.clone(), texts(Some(values)))).collect(),
    }
}

// === Validation ===

fn validate(request: &Request, review: &Value, is_self: bool) -> Vec<FieldError> {
    let spec = FieldPath::root("spec");
    let mut errors = Vec::new();
    let path = given(review, "/spec/nonResourceAttributes");
    let resource = given(review, "/spec/resourceAttributes");
    if resource.is_some() == path.is_some() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid(&spec, path.cloned().unwrap_or_default(), detail));
    }
    if !is_self {
        let user = subject(review);
        if user.name.is_empty() && user.groups.is_empty() {
            let detail = "at least one of user or group must be specified";
            errors.push(FieldError::invalid(&spec.child("user"), "", detail));
        }
    }
    let resource_path = spec.child("resourceAttributes");
    if let Some(resource) = resource {
        let fields = validate_selector(resource, "fieldSelector", &resource_path, validate_field_requirement);
        let labels = validate_selector(resource, "labelSelector", &resource_path, |requirement, path| {
            labels::validate_requirement(requirement, path, true)
        });
        errors.extend(fields.into_iter().chain(labels));
    }
    errors.extend(validate_metadata(request, review));
    if !request.kind.namespaced {
        return errors;
    }
    if let Some(resource) = resource {
        let asked = resource.get("namespace").and_then(Value::as_str).unwrap_or_default();
        if asked != request.attributes.namespace {
            let path = resource_path.child("namespace");
            errors.push(FieldError::invalid(&path, asked, "must match metadata.namespace"));
        }
    }
    if let Some(path) = path {
        let at = spec.child("nonResourceAttributes");
        errors.push(FieldError::invalid(&at, path.clone(), "disallowed on this kind of request"));
    }
    errors
}

/// A review is nothing but its spec.
fn validate_metadata(request: &Request, review: &Value) -> Option<FieldError> {
    let empty = Map::new();
    let metadata = review.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let detail = if request.kind.namespaced { "must be empty except for namespace" } else { "must be empty" };
    let is_set = |(field, value): (&String, &Value)| {
        let ignored = field == "managedFields" || (field == "namespace" && request.kind.namespaced);
        let zero = match value {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            _ => false,
        };
        !ignored && !zero
    };
    let invalid = || FieldError::invalid(&FieldPath::root("metadata"), metadata.clone(), detail);
    metadata.iter().any(is_set).then(invalid)
}

fn validate_selector(
    resource: &Value,
    field: &str,
    path: &FieldPath,
    validate: impl Fn(&Value, &FieldPath) -> Vec<FieldError>,
) -> Vec<FieldError> {
    let Some(selector) = resource.get(field).filter(|selector| !selector.is_null()) else {
        return Vec::new();
    };
    let path = path.child(field);
    let raw = selector.get("rawSelector").and_then(Value::as_str).unwrap_or_default();
    let requirements = selector.get("requirements").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut errors = Vec::new();
    if !raw.is_empty() && !requirements.is_empty() {
        let detail = "may not specified at the same time as requirements";
        errors.push(FieldError::invalid(&path.child("rawSelector"), raw, detail));
    }
    if raw.is_empty() && requirements.is_empty() {
        let detail = format!("when {} is specified, requirements or rawSelector is required", path.as_str());
        errors.push(FieldError::required(&path.child("requirements"), detail));
    }
    for (index, requirement) in requirements.iter().enumerate() {
        errors.extend(validate(requirement, &path.child("requirements").index(index)));
    }
    errors
}

/// Validates a requirement of a field selector. A newer client may know operators that this server does not.
fn validate_field_requirement(requirement: &Value, path: &FieldPath) -> Vec<FieldError> {
    let text = |field: &str| requirement.get(field).and_then(Value::as_str).unwrap_or_default();
    let has_values =
        requirement.get("values").and_then(Value::as_array).is_some_and(|values| !values.is_empty());
    let mut errors = Vec::new();
    if text("key").is_empty() {
        errors.push(FieldError::required(&path.child("key"), "must be specified"));
    }
    match text("operator") {
        "In" | "NotIn" if !has_values => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(&path.child("values"), detail));
        }
        "Exists" | "DoesNotExist" if has_values => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&path.child("values"), detail));
        }
        _ => {}
    }
    errors
}

// === Attributes ===

/// Returns the attributes that a review asks about.
fn attributes(review: &Value, user: Arc<UserInfo>) -> Attributes {
    let text = |path: &str| review.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some(resource) = given(review, "/spec/resourceAttributes") else {
        let verb = text("/spec/nonResourceAttributes/verb").as_str().into();
        return Attributes {
            user,
            verb,
            path: text("/spec/nonResourceAttributes/path"),
            ..Attributes::default()
        };
    };
    let field = |name: &str| resource.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (subresource, version) = (field("subresource"), field("version"));
    Attributes {
        user,
        verb: field("verb").as_str().into(),
        is_resource_request: true,
        group: field("group"),
        version: if version.is_empty() { "*".to_owned() } else { version },
        resource: field("resource"),
        subresource: (!subresource.is_empty()).then(|| subresource.as_str().into()),
        namespace: field("namespace"),
        name: field("name"),
        selectors: selectors(resource),
        ..Attributes::default()
    }
}

/// Returns the selectors of a review's resource attributes.
fn selectors(resource: &Value) -> Option<Box<Selectors>> {
    let of = |field: &str| resource.get(field).filter(|selector| !selector.is_null());
    let (fields, labels) = (of("fieldSelector"), of("labelSelector"));
    if fields.is_none() && labels.is_none() {
        return None;
    }
    let raw = |selector: Option<&Value>| {
        let raw = selector.and_then(|selector| selector.get("rawSelector")?.as_str());
        raw.unwrap_or_default().to_owned()
    };
    let mut selectors = Selectors::parse(&raw(fields), &raw(labels));
    let requirements = |selector: Option<&Value>| {
        let requirements = selector.and_then(|selector| selector.get("requirements")?.as_array().cloned());
        requirements.filter(|requirements| !requirements.is_empty())
    };
    if let Some(requirements) = requirements(fields) {
        let parsed: Vec<Option<Term>> = requirements.iter().map(field_requirement).collect();
        selectors.fields_incomplete = parsed.contains(&None);
        selectors.fields = parsed.into_iter().flatten().collect();
    }
    if let Some(requirements) = requirements(labels) {
        let parsed: Vec<Option<Requirement>> = requirements.iter().map(label_requirement).collect();
        selectors.labels_incomplete = parsed.contains(&None);
        selectors.labels = parsed.into_iter().flatten().collect();
    }
    Some(Box::new(selectors))
}

/// Returns a requirement of a field selector; `None` if it cannot be expressed as an equality or inequality.
fn field_requirement(requirement: &Value) -> Option<Term> {
    let values = texts(requirement.get("values"));
    let [value] = values.as_slice() else { return None };
    let equal = match requirement.get("operator").and_then(Value::as_str) {
        Some("In") => true,
        Some("NotIn") => false,
        _ => return None,
    };
    let field = requirement.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(Term { field, equal, value: value.clone() })
}

fn label_requirement(requirement: &Value) -> Option<Requirement> {
    let operator = match requirement.get("operator").and_then(Value::as_str) {
        Some("In") => Operator::In,
        Some("NotIn") => Operator::NotIn,
        Some("Exists") => Operator::Exists,
        Some("DoesNotExist") => Operator::DoesNotExist,
        _ => return None,
    };
    let key = requirement.get("key").and_then(Value::as_str).unwrap_or_default();
    Requirement::new(key, operator, texts(requirement.get("values"))).ok()
}

/// Joins the error of an evaluation with those of selectors that were not understood.
fn evaluation_error(error: Option<String>, selectors: Option<&Selectors>) -> String {
    let mut errors: Vec<String> = error.into_iter().collect();
    let mut ignored = |field: &str, incomplete: bool, empty: bool| {
        if incomplete {
            let partially = if empty { "" } else { "partially " };
            errors.push(format!("spec.resourceAttributes.{field} {partially}ignored due to parse error"));
        }
    };
    if let Some(selectors) = selectors {
        ignored("fieldSelector", selectors.fields_incomplete, selectors.fields.is_empty());
        ignored("labelSelector", selectors.labels_incomplete, selectors.labels.is_empty());
    }
    errors.join("; ")
}
