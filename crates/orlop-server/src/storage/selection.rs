//! Selectors: what of them the index answers, and what is left to look at objects for.
//!
//! Labels are indexed as `l:KEY`, selectable fields as `f:PATH`, owners as `o`. A selector that the index
//! cannot answer whole (integer comparisons, the name across namespaces) leaves a rest that is checked on
//! the few objects that come through.

use orlop_api::{
    fields,
    labels::{self, Operator},
    status::Status,
};
use orlop_store::{Filter, KeyRange, Requirement};
use serde_json::Value;

use super::ObjectStore;
use crate::{http::query::Query, registry::Kind};

/// What a list, watch or deletecollection is restricted to.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// Which keys.
    pub(crate) range: KeyRange,
    /// What every key begins with; continue tokens are relative to it.
    pub(crate) prefix: String,
    /// What the index answers.
    pub(crate) filter: Filter,
    /// What has to be checked on each object.
    rest: Option<(labels::Selector, fields::Selector)>,
    /// What the keys of selected objects end with, if all that has to be checked is the name.
    ending: Option<String>,
    /// Whether there is any selector at all.
    pub(crate) selective: bool,
}

impl Selection {
    /// Reads a request's selectors.
    pub(crate) fn of(
        objects: &ObjectStore,
        kind: &Kind,
        namespace: &str,
        name: &str,
        query: &Query,
    ) -> Result<Self, Status> {
        let label_text = query.text("labelSelector");
        let label_selector =
            labels::parse(label_text).map_err(|error| Status::bad_request(error.to_string()))?;
        let field_selector = fields::Selector::parse(query.text("fieldSelector"))
            .map_err(|error| Status::bad_request(error.to_string()))?;
        let mut selection = Self {
            range: KeyRange::all(),
            prefix: objects.collection(kind, namespace),
            filter: Filter::everything(),
            rest: None,
            ending: None,
            selective: !label_selector.is_everything() || !field_selector.is_everything(),
        };
        let labelled = selection.labels(&label_selector);
        let (fields, named) = selection.fields(kind, namespace, name, &field_selector)?;
        selection.range =
            match Some(name).filter(|name| !name.is_empty()).or(field_selector.requires("metadata.name")) {
                Some(name) if !kind.namespaced || !namespace.is_empty() => {
                    KeyRange::key(objects.key(kind, namespace, name))
                }
                _ => KeyRange::prefix(selection.prefix.clone()),
            };
        if labelled && fields && !named {
            let name = field_selector.requires("metadata.name");
            let placed =
                |name: &str| kind.storage_key("", name).map_or_else(|| name.to_owned(), |(_, name)| name);
            selection.ending = name.map(|name| format!("/{}", placed(name)));
        }
        if !(labelled && fields && named) {
            selection.rest = Some((label_selector, field_selector));
        }
        Ok(selection)
    }

    /// Whether the index answers all of it.
    pub(crate) fn is_indexed(&self) -> bool {
        self.rest.is_none()
    }

    /// Whether the index and an object's key answer all of it.
    pub(crate) fn is_told_by_key(&self) -> bool {
        self.is_indexed() || self.ending.is_some()
    }

    /// Whether an object with this key may be selected.
    pub(crate) fn admits(&self, key: &[u8]) -> bool {
        self.ending.as_ref().is_none_or(|ending| key.ends_with(ending.as_bytes()))
    }

    /// Whether an object that the index let through is selected.
    pub(crate) fn matches(&self, kind: &Kind, object: &Value) -> bool {
        self.rest.as_ref().is_none_or(|(labels, fields)| {
            labels.matches_object(object) && fields.matches(|path| field(kind, object, path))
        })
    }

    /// Turns label requirements into index terms; whether that is all there is to them.
    fn labels(&mut self, selector: &labels::Selector) -> bool {
        let mut whole = true;
        for requirement in selector.requirements() {
            let (field, values) = (format!("l:{}", requirement.key()), requirement.values().to_vec());
            self.filter.0.push(match requirement.operator() {
                Operator::In | Operator::Equals | Operator::DoubleEquals => Requirement::In(field, values),
                Operator::NotIn | Operator::NotEquals => Requirement::NotIn(field, values),
                Operator::Exists => Requirement::Exists(field),
                Operator::DoesNotExist => Requirement::Absent(field),
                Operator::GreaterThan | Operator::LessThan => {
                    whole = false;
                    Requirement::Exists(field)
                }
            });
        }
        whole
    }

    /// Turns field requirements into index terms; whether that is all there is to them but the name, and
    /// whether it is to the name.
    fn fields(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        selector: &fields::Selector,
    ) -> Result<(bool, bool), Status> {
        let in_one_place = !kind.namespaced || !namespace.is_empty();
        let (mut whole, mut named) = (true, true);
        for term in &selector.terms {
            let path = term.field.as_str();
            if path.is_empty() && term.value.is_empty() {
                // Kubernetes takes a bare equals sign for nothing at all.
                continue;
            }
            if path == "metadata.name" {
                if !name.is_empty() && term.equal && term.value != name {
                    let why = "fieldSelector metadata.name doesn't match requested name";
                    return Err(Status::bad_request(why));
                }
                // A name in one place is one key, and needs no second look.
                let wanted = if name.is_empty() { selector.requires(path) } else { Some(name) };
                whole &= term.equal && wanted == Some(&term.value);
                named &= in_one_place;
            } else if path == "metadata.namespace" && kind.namespaced {
                whole &= term.equal && term.value == namespace;
            } else if kind.selectable_fields.iter().any(|known| known == path) {
                let Some(indexed) = kind.indexed_as(path) else {
                    whole = false;
                    continue;
                };
                let (field, value) = (format!("f:{indexed}"), term.value.clone());
                self.filter.0.push(if term.equal {
                    Requirement::equals(field, value)
                } else {
                    Requirement::not_equals(field, value)
                });
            } else if kind.selectable_fields.is_empty() && !kind.flags.custom {
                return Err(Status::bad_request(format!(
                    "{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                )));
            } else {
                return Err(Status::bad_request(not_selectable(kind, path)));
            }
        }
        Ok((whole, named))
    }
}

/// What a kind with fields of its own says of others. Two have their own words.
fn not_selectable(kind: &Kind, path: &str) -> String {
    match (kind.gvk.group.as_str(), kind.resource.as_str()) {
        ("batch", "jobs") => format!("field label {path:?} not supported for Job"),
        ("resource.k8s.io", "resourceslices") => {
            format!("field label not supported for {}: {path}", kind.gvk)
        }
        _ => format!("field label not supported: {path}"),
    }
}

fn field(kind: &Kind, object: &Value, path: &str) -> String {
    match path {
        "metadata.name" | "metadata.namespace" => fields::field_text(object, path),
        _ => kind.strategy.field_value(object, path),
    }
}
