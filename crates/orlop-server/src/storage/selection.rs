//! Selectors: index terms, and the residual terms that are checked on decoded objects.
//!
//! Terms that the index cannot answer (integer comparisons, the name across namespaces) are residual: they are
//! checked on the few objects that the index selects.

use orlop_api::{
    fields,
    labels::{self, Operator},
    status::Status,
};
use orlop_store::{Filter, KeyRange, Requirement};
use serde_json::Value;

use super::ObjectStore;
use crate::{http::query::Query, registry::Kind};

/// The selection of a list, watch or deletecollection.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    /// Range of keys.
    pub(crate) range: KeyRange,
    /// Prefix of all keys; continue tokens are relative to it.
    pub(crate) prefix: String,
    /// Terms that the index answers.
    pub(crate) filter: Filter,
    /// Residual selectors, checked on each object.
    residual: Option<(labels::Selector, fields::Selector)>,
    /// Suffix of selected keys, if only the name is residual.
    key_suffix: Option<String>,
    /// True if there is any selector.
    pub(crate) selective: bool,
}

impl Selection {
    /// Parses the selectors of a request.
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
            residual: None,
            key_suffix: None,
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
            let stored_name =
                |name: &str| kind.storage_key("", name).map_or_else(|| name.to_owned(), |(_, name)| name);
            selection.key_suffix = name.map(|name| format!("/{}", stored_name(name)));
        }
        if !(labelled && fields && named) {
            selection.residual = Some((label_selector, field_selector));
        }
        Ok(selection)
    }

    /// Returns true if the index answers the selection.
    pub(crate) fn is_indexed(&self) -> bool {
        self.residual.is_none()
    }

    /// Returns true if the index and the key of an object answer the selection.
    pub(crate) fn is_decided_by_key(&self) -> bool {
        self.is_indexed() || self.key_suffix.is_some()
    }

    /// Returns true if an object with this key may be selected.
    pub(crate) fn may_select_key(&self, key: &[u8]) -> bool {
        self.key_suffix.as_ref().is_none_or(|key_suffix| key.ends_with(key_suffix.as_bytes()))
    }

    /// Returns true if an object that the index selects also matches the residual selectors.
    pub(crate) fn matches(&self, kind: &Kind, object: &Value) -> bool {
        self.residual.as_ref().is_none_or(|(labels, fields)| {
            labels.matches_object(object) && fields.matches(|path| field(kind, object, path))
        })
    }

    /// Adds index terms of label requirements. Returns true if none is residual.
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

    /// Adds index terms of field requirements. Returns true if none but the name is residual, and true if the name
    /// is not.
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
                // Kubernetes ignores a bare equals sign.
                continue;
            }
            if path == "metadata.name" {
                if !name.is_empty() && term.equal && term.value != name {
                    let why = "fieldSelector metadata.name doesn't match requested name";
                    return Err(Status::bad_request(why));
                }
                // A name in one namespace is one key.
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

/// Returns the error message for a field that is not selectable, which two kinds word differently.
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
