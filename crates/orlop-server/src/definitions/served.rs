//! A definition and its kinds.

use std::sync::Arc;

use orlop_api::{group_version::GroupVersionKind, names::NameRule, schema::Schema};
use orlop_crd::{Definition, Names, Scope, Version};
use orlop_kinds::apiextensions;
use orlop_store::{KeyValue, Revision};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{
    conversion::{ConversionStrategy, Converter},
    object::CustomObject,
};
use crate::{
    registry::{
        Found, Kind, KindSchema, LazySchema, Retirement, StaticOrBoxed, Storage, StrategyFlags, Subresource,
    },
    storage::ObjectStore,
};

/// Verbs of custom resources, in discovery's order.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
const SUBRESOURCE_VERBS: &[&str] = &["get", "patch", "update"];

/// A definition that is served.
#[derive(Debug)]
pub(crate) struct ServedDefinition {
    pub(crate) definition: Definition,
    /// Distinguishes it from an earlier definition of the same name.
    pub(crate) create_revision: Revision,
    /// True if it is deleted and waits for its objects to be.
    pub(crate) finalizing: bool,
    /// `metadata.generation`.
    pub(crate) generation: i64,
    /// Digest of what the kinds depend on: the spec and the accepted names.
    fingerprint: String,
    /// A kind per version, served or not.
    kinds: Vec<Arc<Kind>>,
}

impl ServedDefinition {
    /// Decodes a stored definition. Keeps the kinds of the previous state if what they depend on is unchanged, so that
    /// their watches go on.
    pub(crate) fn of(
        objects: &Arc<ObjectStore>,
        kv: KeyValue,
        before: Option<&Self>,
    ) -> Result<Self, String> {
        let create_revision = kv.create_revision;
        let object = Found::from(kv).as_stored().map_err(|status| status.message)?;
        let mut definition = Definition::of(&object).map_err(|error| error.to_string())?;
        let fingerprint =
            digest(&[&object["spec"].to_string(), &object["status"]["acceptedNames"].to_string()]);
        let same = before
            .filter(|before| before.create_revision == create_revision && before.fingerprint == fingerprint);
        let kinds = match same {
            Some(before) => {
                // Versions hold their compiled schemas and rules.
                definition.versions.clone_from(&before.definition.versions);
                before.kinds.clone()
            }
            None => kinds(objects, &definition, &object, &fingerprint),
        };
        let generation = object["metadata"]["generation"].as_i64().unwrap_or_default();
        Ok(Self {
            definition,
            create_revision,
            finalizing: apiextensions::is_finalizing(&object),
            generation,
            fingerprint,
            kinds,
        })
    }

    /// Returns the kinds of the registry: of served versions, once the definition is established.
    pub(crate) fn offered(&self) -> impl Iterator<Item = &Arc<Kind>> {
        let established = self.definition.is_established();
        let versions = self.definition.versions.iter().zip(&self.kinds);
        versions.filter(move |(version, _)| established && version.served).map(|(_, kind)| kind)
    }

    /// Returns the kind of the storage version.
    pub(crate) fn stored_kind(&self) -> Option<&Arc<Kind>> {
        let mut versions = self.definition.versions.iter().zip(&self.kinds);
        versions.find(|(version, _)| version.storage).map(|(_, kind)| kind)
    }
}

/// Returns the stamp of objects under a schema. Objects with another are completed whenever they are read.
///
/// The stamp of a schema with defaults has a revision of its own: up to the first one, a create did not apply the
/// defaults below `status`.
fn stamp(schema: &str) -> String {
    const DEFAULTING: &str = "defaulting 1";
    if schema.contains("\"default\"") { digest(&[schema, DEFAULTING]) } else { digest(&[schema]) }
}

fn digest(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The schema of a version, parsed at its first use.
#[derive(Debug)]
struct VersionSchema {
    version: Arc<Version>,
    fingerprint: String,
}

impl LazySchema for VersionSchema {
    fn schema(&self) -> &Schema {
        self.version.schema()
    }

    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn is_built(&self) -> bool {
        self.version.is_built()
    }
}

/// Returns a kind per version: the storage version's, and the others as views of it.
fn kinds(
    objects: &Arc<ObjectStore>,
    definition: &Definition,
    object: &Value,
    fingerprint: &str,
) -> Vec<Arc<Kind>> {
    let schema_text = |version: &Version| {
        let all = object["spec"]["versions"].as_array().into_iter().flatten();
        let found = all.into_iter().find(|written| written["name"] == version.name.as_str());
        found.map(|written| written["schema"].to_string()).unwrap_or_default()
    };
    let stored = definition.storage_version();
    let stored_schema = schema_text(stored);
    let strategy = ConversionStrategy::of(definition, Arc::downgrade(objects));
    let converter = |version: &Arc<Version>| {
        Arc::new(Converter::new(
            version.clone(),
            stored.clone(),
            definition.versions.clone(),
            strategy.clone(),
        ))
    };
    let make =
        |version: &Arc<Version>, storage: Storage| Arc::new(kind(definition, version, fingerprint, storage));
    let stamp = stamp(&stored_schema);
    let storage = Storage::stamped(&gvk(definition, stored), &stamp, converter(stored));
    let stored_kind = make(stored, storage);
    let versions = definition.versions.iter().map(|version| {
        if version.storage {
            return stored_kind.clone();
        }
        let storage = Storage::translated(stored_kind.clone(), converter(version));
        // Versions that differ only in name are served without decoding.
        let same = strategy.only_renames() && schema_text(version) == stored_schema;
        make(version, if same { storage.renamed_only(&gvk(definition, version)) } else { storage })
    });
    versions.collect()
}

fn gvk(definition: &Definition, version: &Version) -> GroupVersionKind {
    GroupVersionKind::new(&definition.group, &version.name, &definition.accepted_names.kind)
}

fn kind(definition: &Definition, version: &Arc<Version>, fingerprint: &str, storage: Storage) -> Kind {
    let Names { plural, singular, kind: _, list_kind, short_names, categories } =
        definition.accepted_names.clone();
    let gvk = gvk(definition, version);
    let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let subresource = |name: &str, gvk: GroupVersionKind| Subresource {
        name: name.to_owned(),
        gvk,
        verbs: owned(SUBRESOURCE_VERBS),
    };
    let status = version.has_status.then(|| subresource("status", gvk.clone()));
    let scale =
        version.scale().map(|_| subresource("scale", GroupVersionKind::new("autoscaling", "v1", "Scale")));
    let schema = VersionSchema { version: version.clone(), fingerprint: fingerprint.to_owned() };
    Kind {
        gvk,
        list_kind,
        resource: plural,
        singular,
        namespaced: definition.scope == Scope::Namespaced,
        verbs: owned(VERBS),
        short_names,
        categories,
        subresources: status.into_iter().chain(scale).collect(),
        schema: KindSchema::Lazy(Arc::new(schema)),
        storage,
        name_rule: NameRule::Subdomain,
        flags: StrategyFlags { allow_unconditional_update: false, ..StrategyFlags::CUSTOM },
        selectable_fields: version.selectable().names().map(str::to_owned).collect(),
        immortal_names: &[],
        update_scopes: &[],
        columns: StaticOrBoxed::Boxed(Box::new(CustomObject::new(version.clone()))),
        strategy: StaticOrBoxed::Boxed(Box::new(CustomObject::new(version.clone()))),
        retirement: Retirement::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_from_before_status_defaulting_have_another_stamp() {
        let schema = r#"{"openAPIV3Schema":{"type":"object","default":{}}}"#;
        assert_ne!(stamp(schema), digest(&[schema]));
        let plain = r#"{"openAPIV3Schema":{"type":"object"}}"#;
        assert_eq!(stamp(plain), digest(&[plain]));
    }
}
