//! The ResourceGraphDefinition as its author wrote it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::names;

/// `spec` of a ResourceGraphDefinition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DefinitionSpec {
    /// The kind that is defined.
    #[serde(default)]
    pub schema: SchemaSpec,
    /// The nodes of the graph.
    #[serde(default, deserialize_with = "nullable")]
    pub resources: Vec<ResourceSpec>,
    /// Service account of the instance's namespace that children are applied as. Not in kro.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account_name: Option<String>,
    /// Deletion policy of instances when the definition is deleted. Not in kro.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<DeletionPolicy>,
}

/// Deletion policy of live instances when their definition is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeletionPolicy {
    /// The definition waits, and goes on serving, until its instances are gone.
    #[default]
    Wait,
    /// Its instances are deleted first.
    Drain,
    /// Instances are left as they are, without their finalizer.
    Orphan,
}

/// `spec.schema`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SchemaSpec {
    /// Kind, UpperCamelCase.
    #[serde(default)]
    pub kind: String,
    /// Version without the group.
    #[serde(default)]
    pub api_version: String,
    /// Group; `kro.run` where it is absent.
    #[serde(default = "default_group", deserialize_with = "group_or_default")]
    pub group: String,
    /// Scope of instances.
    #[serde(default)]
    pub scope: Scope,
    /// Fields of `spec`, in SimpleSchema.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Map::is_empty")]
    pub spec: Map<String, Json>,
    /// Custom types, in SimpleSchema.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Map::is_empty")]
    pub types: Map<String, Json>,
    /// Fields of `status`, as expressions.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Map::is_empty")]
    pub status: Map<String, Json>,
    /// Printer columns that replace the default ones.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub additional_printer_columns: Vec<Json>,
    /// Short names of the resource.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub short_names: Vec<String>,
    /// Categories of the resource.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub categories: Vec<String>,
    /// Labels and annotations of the generated CRD.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "CrdMetadata::is_empty")]
    pub metadata: CrdMetadata,
}

/// Labels and annotations of the generated CRD.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CrdMetadata {
    /// Labels.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl CrdMetadata {
    fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// Scope of instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Instances live in namespaces.
    #[default]
    Namespaced,
    /// Instances live beside namespaces.
    Cluster,
}

/// One of `spec.resources`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSpec {
    /// Name of the node in expressions.
    #[serde(default)]
    pub id: String,
    /// Manifest of a managed object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Json>,
    /// Reference to objects managed by others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_ref: Option<ExternalRef>,
    /// Conditions for the node to count as ready.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub ready_when: Vec<String>,
    /// Conditions for the node to exist.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub include_when: Vec<String>,
    /// Lists that the node is repeated over.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub for_each: Vec<BTreeMap<String, String>>,
    /// Nodes to wait for without reading them. Not in kro.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Dependency>,
    /// Adoption and deletion of the node's objects. Not in kro.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
}

/// One of `dependsOn`: an id, or an id with its strength.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Dependency {
    /// A hard dependency.
    Id(String),
    /// A dependency of either strength.
    Node {
        /// The node waited for.
        id: String,
        /// Orders creation and deletion, but a node that is skipped or not ready holds nothing up.
        #[serde(default)]
        soft: bool,
    },
}

impl Dependency {
    /// The node waited for.
    pub fn id(&self) -> &str {
        match self {
            Self::Id(id) | Self::Node { id, .. } => id,
        }
    }

    /// Returns true if the dependency only orders.
    pub fn is_soft(&self) -> bool {
        matches!(self, Self::Node { soft: true, .. })
    }
}

/// Adoption and deletion of a node's objects.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lifecycle {
    /// Adoption policy of an object that exists already.
    #[serde(default)]
    pub adopt: Adopt,
    /// Keeps objects that the graph no longer has, and those of a deleted instance: the same as `onDelete: Retain`.
    #[serde(default)]
    pub retain: bool,
    /// Deletion policy of objects of a deleted instance and of pruned ones.
    #[serde(default)]
    pub on_delete: OnDelete,
}

/// Adoption policy of an object that exists and belongs to nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Adopt {
    /// Takes it over unless it is another ApplySet's.
    #[default]
    IfUnowned,
    /// Takes it over from anybody.
    Always,
    /// Leaves it alone and reports a conflict.
    Never,
}

/// Deletion policy of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnDelete {
    /// They are deleted.
    #[default]
    Delete,
    /// They stay, without the labels that tie them to the instance.
    Retain,
}

impl Lifecycle {
    /// Returns true if objects outlive the node.
    pub fn retains(&self) -> bool {
        self.retain || self.on_delete == OnDelete::Retain
    }
}

/// `externalRef` of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalRef {
    /// `apiVersion` of the objects.
    #[serde(default)]
    pub api_version: String,
    /// Kind of the objects.
    #[serde(default)]
    pub kind: String,
    /// Name and namespace, or selector.
    #[serde(default)]
    pub metadata: ExternalMetadata,
}

/// `externalRef.metadata`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalMetadata {
    /// Name, or an expression of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Namespace, or an expression of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Label selector, or an expression of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Json>,
}

impl DefinitionSpec {
    /// Reads `spec`.
    pub fn from_json(spec: &Json) -> Result<Self, String> {
        serde_json::from_value(spec.clone()).map_err(|error| format!("spec: {error}"))
    }

    /// Returns the hash of the spec: equal for specs that mean the same.
    pub fn hash(&self) -> String {
        let mut canonical = self.clone();
        canonical.resources.sort_by(|a, b| a.id.cmp(&b.id));
        for resource in &mut canonical.resources {
            resource.ready_when.sort();
            resource.include_when.sort();
        }
        let text = serde_json::to_string(&canonical).unwrap_or_default();
        format!("{:016x}", fnv1a64(text.as_bytes()))
    }
}

/// FNV-1a, 64 bits.
pub fn fnv1a64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// FNV-1a, 32 bits.
pub fn fnv1a32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

fn default_group() -> String {
    names::GROUP.to_owned()
}

fn group_or_default<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let group = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    Ok(if group.is_empty() { default_group() } else { group })
}

/// Reads null as the default.
fn nullable<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hash_ignores_order_of_resources_and_absent_lists() {
        let one = DefinitionSpec::from_json(&json!({
            "schema": {"kind": "App", "apiVersion": "v1alpha1", "scope": "Namespaced"},
            "resources": [{"id": "a", "template": {}, "readyWhen": null}, {"id": "b", "template": {}}]}));
        let other = DefinitionSpec::from_json(&json!({
            "schema": {"kind": "App", "apiVersion": "v1alpha1", "group": "kro.run", "scope": "Namespaced"},
            "resources": [{"id": "b", "template": {}, "includeWhen": []}, {"id": "a", "template": {}}]}));
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.hash(), other.hash());
        assert_eq!(one.hash().len(), 16);
        let changed = DefinitionSpec { resources: Vec::new(), ..one.clone() };
        assert_ne!(one.hash(), changed.hash());
    }
}
