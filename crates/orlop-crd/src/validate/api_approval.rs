//! API approval of Kubernetes' protected groups.

use orlop_api::field_error::{FieldError, FieldPath};
use orlop_api::go_text::quote;
use orlop_api::object_meta;
use orlop_api::schema::matches_format;
use orlop_api::schema::unstructured::text;
use serde_json::Value;
use std::fmt;

pub(crate) const ANNOTATION: &str = "api-approved.kubernetes.io";
const SEE: &str = "see https://github.com/kubernetes/enhancements/pull/1111";

/// Returns whether a group is protected (`*.k8s.io`, `*.kubernetes.io`).
pub(crate) fn is_protected(group: &str) -> bool {
    ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// Value of the api-approved annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Approval {
    Invalid,
    /// The URL of the approval.
    Approved(String),
    /// A reason for being unapproved.
    Bypassed(String),
    Missing,
}

impl Approval {
    pub(crate) fn of(definition: &Value) -> Self {
        let annotation = annotation(definition);
        let host = annotation
            .split_once("://")
            .map(|(_, rest)| rest.split(['/', '?', '#']).next().unwrap_or_default());
        if annotation.is_empty() {
            Self::Missing
        } else if annotation.starts_with("unapproved") {
            Self::Bypassed(annotation.to_owned())
        } else if host.is_some_and(|host| !host.is_empty()) && matches_format("uri", annotation) {
            Self::Approved(annotation.to_owned())
        } else {
            Self::Invalid
        }
    }
}

impl fmt::Display for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = format!("protected groups must have approval annotation {}", quote(ANNOTATION));
        match self {
            Self::Invalid => {
                write!(f, "{wanted} with either a URL or a reason starting with \"unapproved\", {SEE}")
            }
            Self::Approved(url) => write!(f, "approved in {url}"),
            Self::Bypassed(reason) => write!(f, "not approved: {}", quote(reason)),
            Self::Missing => write!(f, "{wanted}, {SEE}"),
        }
    }
}

fn annotation(definition: &Value) -> &str {
    let annotations = object_meta::of(definition).get("annotations").unwrap_or(&Value::Null);
    text(annotations, ANNOTATION)
}

/// Validates the api-approved annotation. An unchanged annotation is not validated.
pub(super) fn validate(definition: &Value, old: Option<&Value>) -> Option<FieldError> {
    let group = definition.get("spec").map(|spec| text(spec, "group")).unwrap_or_default();
    if !is_protected(group) {
        return None;
    }
    let approval = Approval::of(definition);
    let same = |old: &Value| std::mem::discriminant(&Approval::of(old)) == std::mem::discriminant(&approval);
    if old.is_some_and(same) {
        return None;
    }
    let path = FieldPath::root("metadata").child("annotations").key(ANNOTATION);
    match approval {
        Approval::Invalid => Some(FieldError::invalid(&path, annotation(definition), approval.to_string())),
        Approval::Missing => Some(FieldError::required(&path, approval.to_string())),
        Approval::Approved(_) | Approval::Bypassed(_) => None,
    }
}
