//! Objects with their metadata.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An object: metadata, and what its type says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Object<T> {
    /// Who it is.
    #[serde(default)]
    pub metadata: Metadata,
    /// What it holds.
    #[serde(flatten)]
    pub body: T,
}

/// What of an object's metadata hooks most often look at; the rest is kept as it is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its namespace, if its kind has them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// What it is selected by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What is noted on it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// What must be done before it goes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Everything else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}
