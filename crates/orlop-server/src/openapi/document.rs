//! Builds a document a path and a schema at a time into a compressor: half a megabyte of JSON is never in memory.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io::Write,
    sync::Arc,
};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use orlop_aggregator::open_api::Spec;
use orlop_api::{group_version::GroupVersion, protobuf::openapi as protobuf, schema::builtin::type_named};
use serde_json::{Map, Value, json};

use super::{SpecVersion, descriptions, paths, references::META, schemas::Definition, v2, v3};
use crate::{registry::Kind, version};

/// Types that operations of every kind refer to.
const COMMON: &[&str] = &["APIResourceList", "DeleteOptions", "Patch", "Status", "WatchEvent"];

/// Returns what parts of other servers' version 2 documents add to the document of kinds.
fn merged(kinds: &[Arc<Kind>], remote: &[Arc<Spec>]) -> Spec {
    let mut merged = Spec::default();
    if remote.is_empty() {
        return merged;
    }
    let (definitions, versions) = (definitions(kinds), versions(kinds));
    let text = descriptions::Text::open();
    let words = text.index();
    for spec in remote {
        let existing = |name: &str| {
            let local = definitions.get(name);
            let local = local.map(|definition| definition.schema(SpecVersion::V2, &versions, &words));
            local.or_else(|| merged.definitions.get(name).cloned())
        };
        // Paths of a group version that another server serves are not among those of kinds.
        let mut part = spec.merged_into(|path| merged.paths.contains_key(path), existing);
        merged.paths.append(&mut part.paths);
        merged.definitions.append(&mut part.definitions);
        merged.parameters.append(&mut part.parameters);
    }
    merged
}

/// Returns the document of kinds, compressed. `remote` are parts of other servers' version 2 documents.
pub(crate) fn write(
    spec_version: SpecVersion,
    kinds: &[Arc<Kind>],
    remote: &[Arc<Spec>],
) -> std::io::Result<Bytes> {
    let merged = merged(kinds, remote);
    let versions = versions(kinds);
    let mut to = GzEncoder::new(Vec::new(), Compression::fast());
    let info = info();
    match spec_version {
        SpecVersion::V2 => write!(to, "{{\"swagger\":\"2.0\",\"info\":{info},\"paths\":")?,
        SpecVersion::V3 => write!(to, "{{\"openapi\":\"3.0.0\",\"info\":{info},\"paths\":")?,
    }
    let text = descriptions::Text::open();
    let words = text.index();
    let mut v2 = v2::Encoder::default();
    let encoder: &mut dyn paths::Encoder =
        if spec_version == SpecVersion::V2 { &mut v2 } else { &mut v3::Encoder };
    let paths = paths_of(kinds).map(|(name, path)| (name, path.encode(&words, encoder)));
    entries(&mut to, paths.chain(merged.paths))?;
    let definitions = definitions(kinds);
    let schemas = definitions
        .iter()
        .map(|(name, definition)| (name.clone(), definition.schema(spec_version, &versions, &words)))
        .chain(merged.definitions);
    let security = json!({"BearerToken": {"in": "header", "name": "authorization", "type": "apiKey",
        "description": "Bearer Token authentication"}});
    match spec_version {
        SpecVersion::V2 => {
            write!(to, ",\"definitions\":")?;
            entries(&mut to, schemas)?;
            write!(to, ",\"parameters\":")?;
            entries(&mut to, with_own(merged.parameters, v2.shared).into_iter())?;
            write!(to, ",\"securityDefinitions\":{security},\"security\":[{{\"BearerToken\":[]}}]}}")?;
        }
        SpecVersion::V3 => {
            write!(to, ",\"components\":{{\"schemas\":")?;
            entries(&mut to, schemas)?;
            write!(to, ",\"securitySchemes\":{security}}}}}")?;
        }
    }
    Ok(to.finish()?.into())
}

/// Returns the version 2 document of kinds in protobuf, compressed.
pub(crate) fn write_protobuf(kinds: &[Arc<Kind>], remote: &[Arc<Spec>]) -> std::io::Result<Bytes> {
    let merged = merged(kinds, remote);
    let versions = versions(kinds);
    let mut to = GzEncoder::new(Vec::new(), Compression::fast());
    to.write_all(&protobuf::head(&info()))?;
    let text = descriptions::Text::open();
    let words = text.index();
    let mut encoder = v2::Encoder::default();
    for (name, path) in paths_of(kinds) {
        to.write_all(&protobuf::path(&name, &path.encode(&words, &mut encoder)))?;
    }
    for (name, path) in &merged.paths {
        to.write_all(&protobuf::path(name, path))?;
    }
    for (name, parameter) in &with_own(merged.parameters, encoder.shared) {
        to.write_all(&protobuf::shared_parameter(name, parameter))?;
    }
    for (name, definition) in &definitions(kinds) {
        to.write_all(&protobuf::definition(name, &definition.schema(SpecVersion::V2, &versions, &words)))?;
    }
    for (name, schema) in &merged.definitions {
        to.write_all(&protobuf::definition(name, schema))?;
    }
    Ok(to.finish()?.into())
}

/// Adds the document's own shared parameters to those of other servers, whose names do not count where both have one.
fn with_own(mut others: Map<String, Value>, own: BTreeMap<String, Value>) -> Map<String, Value> {
    others.extend(own);
    others
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": version::minor()})
}

fn versions(kinds: &[Arc<Kind>]) -> Vec<GroupVersion> {
    let mut versions: Vec<GroupVersion> = kinds.iter().map(|kind| kind.gvk.group_version()).collect();
    versions.dedup();
    versions
}

/// Returns all paths, built a version at a time: those of 1,000 kinds are many.
fn paths_of(kinds: &[Arc<Kind>]) -> impl Iterator<Item = (String, paths::Path)> {
    let same_version = |one: &Arc<Kind>, other: &Arc<Kind>| {
        (&one.gvk.group, &one.gvk.version) == (&other.gvk.group, &other.gvk.version)
    };
    kinds.chunk_by(same_version).flat_map(|kinds| {
        // Kubernetes publishes no list of resources of custom groups.
        let built_in = kinds.first().filter(|kind| !kind.flags.custom);
        let root = built_in.map(|kind| paths::root(&kind.gvk.group_version()));
        let all = root.into_iter().chain(kinds.iter().flat_map(|kind| paths::of(kind)));
        all.map(|path| (path.path.clone(), path)).collect::<BTreeMap<_, _>>()
    })
}

fn entries(
    to: &mut impl Write,
    entries: impl Iterator<Item = (impl AsRef<str>, Value)>,
) -> std::io::Result<()> {
    to.write_all(b"{")?;
    // Encoded whole: feeding the compressor a few bytes at a time takes ten times as long.
    let mut entry = Vec::new();
    for (index, (name, value)) in entries.enumerate() {
        entry.clear();
        if index > 0 {
            entry.push(b',');
        }
        serde_json::to_writer(&mut entry, name.as_ref())?;
        entry.push(b':');
        serde_json::to_writer(&mut entry, &value)?;
        to.write_all(&entry)?;
    }
    to.write_all(b"}")
}

/// Returns all schemas that operations of these kinds refer to, directly or not.
fn definitions(kinds: &[Arc<Kind>]) -> BTreeMap<String, Definition<'_>> {
    let mut found = BTreeMap::new();
    // Documents of custom kinds have neither deprecated watches nor a list of resources.
    let custom = kinds.iter().all(|kind| kind.flags.custom);
    let is_used = |name: &&&str| !custom || !matches!(**name, "APIResourceList" | "WatchEvent");
    let common = COMMON
        .iter()
        .filter(is_used)
        .filter_map(|name| type_named(&format!("{META}.{name}")))
        .map(Definition::Builtin);
    let mut open: Vec<Definition<'_>> = common.collect();
    for kind in kinds {
        open.push(Definition::of(kind));
        if kind.allows("list") {
            open.push(Definition::list_of(kind));
        }
        for subresource in &kind.subresources {
            let gvk = &subresource.gvk;
            let entry = orlop_api::schema::builtin::type_of(&gvk.group, &gvk.version, &gvk.kind);
            open.extend(entry.map(Definition::Builtin));
        }
    }
    while let Some(definition) = open.pop() {
        if let Entry::Vacant(place) = found.entry(definition.name()) {
            open.extend(definition.references());
            place.insert(definition);
        }
    }
    found
}
