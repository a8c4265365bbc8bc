//! Sample objects of built-in kinds, of `data/samples.json`.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Value, json};

/// Namespace of namespaced samples. The first case creates it.
pub(crate) const NAMESPACE: &str = "compare";

/// A sample of a kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sample {
    pub(crate) api_version: String,
    pub(crate) resource: String,
    pub(crate) kind: String,
    pub(crate) namespaced: bool,
    object: Value,
}

pub(crate) fn load() -> Result<Vec<Sample>> {
    serde_json::from_str(include_str!("../data/samples.json")).context("data/samples.json")
}

impl Sample {
    /// Returns the path of the collection.
    pub(crate) fn collection(&self) -> String {
        let Self { api_version, resource, .. } = self;
        let base = if api_version.contains('/') { "apis" } else { "api" };
        match self.namespaced {
            true => format!("/{base}/{api_version}/namespaces/{NAMESPACE}/{resource}"),
            false => format!("/{base}/{api_version}/{resource}"),
        }
    }

    /// Returns the name of the object number `number`. Some kinds have names of their own form.
    pub(crate) fn name(&self, number: usize) -> String {
        match self.resource.as_str() {
            "customresourcedefinitions" => "things.compare.example.com".to_owned(),
            "apiservices" => "v1.other.example.com".to_owned(),
            "ipaddresses" => format!("10.9.{}.{}", number / 250 % 250, number % 250 + 1),
            _ => format!("x{number}"),
        }
    }

    /// Returns the object number `number`.
    pub(crate) fn object(&self, number: usize) -> Value {
        let mut object = json!({
            "apiVersion": self.api_version, "kind": self.kind, "metadata": {"name": self.name(number)},
        });
        if let (Some(fields), Some(object)) = (self.object.as_object(), object.as_object_mut()) {
            object.extend(fields.clone());
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_of_kinds_that_there_are() {
        let samples = load().unwrap();
        for sample in &samples {
            let (group, version) = sample.api_version.split_once('/').unwrap_or(("", &sample.api_version));
            let known = orlop_api::schema::builtin::resources().into_iter().find(|resource| {
                resource.group == group && resource.version == version && resource.plural == sample.resource
            });
            let known = known.unwrap_or_else(|| panic!("{} {}", sample.api_version, sample.resource));
            assert_eq!((known.kind, known.namespaced), (sample.kind.as_str(), sample.namespaced));
        }
        assert!(samples.len() > 50);
    }
}
