//! The `scale` subresource.

use crate::nested;
use orlop_api::field_error::{FieldError, FieldPath};
use orlop_api::object_meta;
use orlop_api::schema::unstructured::text;
use serde_json::{Map, Value, json};

/// Field paths of the scale subresource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// `.spec.replicas`
    pub spec_replicas_path: String,
    /// `.status.replicas`
    pub status_replicas_path: String,
    /// `.status.selector`; empty where there is none.
    pub label_selector_path: String,
}

impl Scale {
    /// Reads `subresources.scale`.
    pub(crate) fn of(scale: &Value) -> Option<Self> {
        scale.as_object()?;
        Some(Self {
            spec_replicas_path: text(scale, "specReplicasPath").to_owned(),
            status_replicas_path: text(scale, "statusReplicasPath").to_owned(),
            label_selector_path: text(scale, "labelSelectorPath").to_owned(),
        })
    }

    /// Returns the spec replicas, if set.
    pub fn spec_replicas(&self, object: &Value) -> Result<Option<i64>, String> {
        nested::integer(object, &self.spec_replicas_path)
    }

    /// Returns the status replicas, if set.
    pub fn status_replicas(&self, object: &Value) -> Result<Option<i64>, String> {
        nested::integer(object, &self.status_replicas_path)
    }

    /// Returns the label selector; empty if unset.
    pub fn selector<'v>(&self, object: &'v Value) -> Result<&'v str, String> {
        if self.label_selector_path.is_empty() {
            return Ok("");
        }
        Ok(nested::string(object, &self.label_selector_path)?.unwrap_or_default())
    }

    /// Returns the `autoscaling/v1` Scale of an object, and whether spec replicas are set. A GET of an object without them
    /// fails with [`Scale::missing_replicas`].
    pub fn read(&self, object: &Value) -> Result<(Value, bool), String> {
        let asked = self.spec_replicas(object)?;
        let meta = object_meta::of(object);
        let kept = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];
        let metadata: Map<String, Value> =
            kept.iter().filter_map(|key| Some(((*key).to_owned(), meta.get(*key)?.clone()))).collect();
        let mut spec = Map::new();
        // Go's encoder leaves out a zero.
        if let Some(replicas) = asked.filter(|replicas| *replicas != 0) {
            spec.insert("replicas".to_owned(), replicas.into());
        }
        let mut status = json!({"replicas": self.status_replicas(object)?.unwrap_or_default()});
        let selector = self.selector(object)?;
        if !selector.is_empty() {
            status["selector"] = selector.into();
        }
        let scale = json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status});
        Ok((scale, asked.is_some()))
    }

    /// Returns the error of reading a scale without spec replicas.
    pub fn missing_replicas(&self) -> String {
        format!(
            "the spec replicas field {} does not exist",
            orlop_api::go_text::quote(&self.spec_replicas_path)
        )
    }

    /// Returns the error of an update that removes the spec replicas.
    pub fn empty_replicas(&self) -> String {
        format!(
            "the spec replicas field {} cannot be empty",
            orlop_api::go_text::quote(&self.spec_replicas_path)
        )
    }

    /// Sets the spec replicas.
    pub fn write(&self, object: &mut Value, replicas: i32) -> Result<(), String> {
        nested::set(object, &self.spec_replicas_path, replicas.into())
    }

    /// Validates the spec replicas of an object.
    pub(crate) fn validate_spec(&self, object: &Value) -> Option<FieldError> {
        check_replicas(&self.spec_replicas_path, self.spec_replicas(object))
    }

    /// Validates the status replicas and the selector of an object.
    pub(crate) fn validate_status(&self, object: &Value) -> Vec<FieldError> {
        let replicas = check_replicas(&self.status_replicas_path, self.status_replicas(object));
        let selector = self.selector(object).err();
        let selector =
            selector.map(|why| FieldError::invalid(&FieldPath::root(&self.label_selector_path), "", why));
        replicas.into_iter().chain(selector).collect()
    }
}

fn check_replicas(path: &str, found: Result<Option<i64>, String>) -> Option<FieldError> {
    let (replicas, problem) = match found {
        Err(problem) => (0, problem),
        Ok(found) => {
            let replicas = found.unwrap_or_default();
            if replicas < 0 {
                (replicas, "should be a non-negative integer".to_owned())
            } else if replicas > i64::from(i32::MAX) {
                (replicas, format!("should be less than or equal to {}", i32::MAX))
            } else {
                return None;
            }
        }
    };
    Some(FieldError::invalid(&FieldPath::root(path), replicas, problem))
}
