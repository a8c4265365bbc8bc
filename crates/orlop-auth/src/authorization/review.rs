//! SubjectAccessReviews for webhooks.

use orlop_api::labels::Operator;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::request::{Attributes, Selectors};

/// Returns the spec of a review of a request. Empty fields are left out, as Kubernetes does.
pub fn spec(attributes: &Attributes) -> Value {
    let user = &attributes.user;
    let mut spec = Map::new();
    if attributes.is_resource_request {
        spec.insert("resourceAttributes".to_owned(), resource_attributes(attributes));
    } else {
        let path = texts(&[("path", &attributes.path), ("verb", attributes.verb.as_str())]);
        spec.insert("nonResourceAttributes".to_owned(), path.into());
    }
    spec.extend(texts(&[("user", &user.name), ("uid", &user.uid)]));
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), user.groups.clone().into());
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
    spec.into()
}

fn resource_attributes(attributes: &Attributes) -> Value {
    let mut resource = texts(&[
        ("namespace", &attributes.namespace),
        ("verb", attributes.verb.as_str()),
        ("group", &attributes.group),
        ("version", &attributes.version),
        ("resource", &attributes.resource),
        ("subresource", attributes.subresource_name()),
        ("name", attributes.object_name()),
    ]);
    if let Some(selectors) = &attributes.selectors {
        let (fields, labels) = (field_requirements(selectors), label_requirements(selectors));
        for (field, requirements) in [("fieldSelector", fields), ("labelSelector", labels)] {
            if !requirements.is_empty() {
                resource.insert(field.to_owned(), json!({"requirements": requirements}));
            }
        }
    }
    resource.into()
}

fn texts(fields: &[(&str, &str)]) -> Map<String, Value> {
    let given = fields.iter().filter(|(_, text)| !text.is_empty());
    given.map(|(field, text)| ((*field).to_owned(), (*text).into())).collect()
}

fn field_requirements(selectors: &Selectors) -> Vec<Value> {
    let requirement = |term: &orlop_api::fields::Term| {
        let operator = if term.equal { "In" } else { "NotIn" };
        json!({"key": term.field, "operator": operator, "values": [term.value]})
    };
    selectors.fields.iter().map(requirement).collect()
}

/// Returns the requirements that a review can express. Leaving one out asks about more.
fn label_requirements(selectors: &Selectors) -> Vec<Value> {
    let requirement = |requirement: &orlop_api::labels::Requirement| {
        let operator = match requirement.operator() {
            Operator::Equals | Operator::DoubleEquals | Operator::In => "In",
            Operator::NotEquals | Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            Operator::GreaterThan | Operator::LessThan => return None,
        };
        let mut json = json!({"key": requirement.key(), "operator": operator});
        if !requirement.values().is_empty() {
            json["values"] = requirement.values().into();
        }
        Some(json)
    };
    selectors.labels.iter().filter_map(requirement).collect()
}

/// The status of an answered review.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReviewStatus {
    /// True if the request is allowed.
    pub allowed: bool,
    /// True if the request is denied, whatever other authorizers say.
    pub denied: bool,
    /// The reason.
    pub reason: String,
}

impl ReviewStatus {
    /// Reads an answer. One of another kind or version, or with a status of other types, is an error.
    pub fn of(answer: &Value, version: &str) -> Result<Self, String> {
        let expected = format!("authorization.k8s.io/{version}");
        for (field, expected) in [("apiVersion", expected.as_str()), ("kind", "SubjectAccessReview")] {
            match answer.get(field) {
                Some(Value::String(given)) if given == expected => {}
                // Kubernetes takes the type of the request for an answer without one.
                None => {}
                Some(given) => {
                    return Err(format!("the answer has the {field} {given}, expected {expected:?}"));
                }
            }
        }
        if !answer.is_object() {
            return Err("the answer is not a SubjectAccessReview".to_owned());
        }
        match answer.get("status") {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(status) => Self::deserialize(status).map_err(|error| format!("status: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::sync::Arc;

    use orlop_api::{query::Query, user::UserInfo};

    use super::*;

    fn attributes(uri: &str) -> Attributes {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let mut user = UserInfo::authenticated("ann", ["dev".to_owned()]);
        user.extra.insert("scopes".to_owned(), vec!["a".to_owned()]);
        Attributes { user: Arc::new(user), ..Attributes::of(&http::Method::GET, path, &Query::parse(query)) }
    }

    #[test]
    fn review_has_all_attributes_and_selectors() {
        let uri = "/apis/apps/v1/namespaces/n/deployments?labelSelector=a%3Db,c,!d,e>1&fieldSelector=metadata.name%3Dx";
        assert_eq!(
            spec(&attributes(uri)),
            json!({
                "user": "ann", "groups": ["dev", "system:authenticated"], "extra": {"scopes": ["a"]},
                "resourceAttributes": {
                    "verb": "list", "group": "apps", "version": "v1", "resource": "deployments", "namespace": "n", "name": "x",
                    "fieldSelector": {"requirements": [{"key": "metadata.name", "operator": "In", "values": ["x"]}]},
                    "labelSelector": {"requirements": [
                        {"key": "a", "operator": "In", "values": ["b"]}, {"key": "c", "operator": "Exists"},
                        {"key": "d", "operator": "DoesNotExist"}]},
                },
            })
        );
        let path = spec(&attributes("/metrics"));
        assert_eq!(path["nonResourceAttributes"], json!({"path": "/metrics", "verb": "get"}));
    }

    #[test]
    fn answers_of_other_types_are_errors() {
        let good = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "status": {"allowed": true, "reason": "r"}});
        let expected = ReviewStatus { allowed: true, denied: false, reason: "r".to_owned() };
        assert_eq!(ReviewStatus::of(&good, "v1"), Ok(expected));
        assert!(ReviewStatus::of(&good, "v1beta1").is_err());
        assert_eq!(ReviewStatus::of(&json!({}), "v1"), Ok(ReviewStatus::default()));
        for bad in [
            json!(null),
            json!([]),
            json!("allowed"),
            json!({"kind": "TokenReview", "status": {"allowed": true}}),
            json!({"kind": null, "status": {"allowed": true}}),
            json!({"status": {"allowed": "true"}}),
            json!({"status": {"allowed": 1}}),
            json!({"status": true}),
        ] {
            assert!(ReviewStatus::of(&bad, "v1").is_err(), "{bad}");
        }
    }
}
