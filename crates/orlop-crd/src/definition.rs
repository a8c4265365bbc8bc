//! Parsed CustomResourceDefinitions. Schemas and rules are built on first use.

use crate::conditions::{Conditions, ESTABLISHED};
use crate::names::Names;
use crate::version::Version;
use orlop_api::group_version::compare_versions;
use orlop_api::object_meta;
use orlop_api::schema::unstructured::{flag, list, strings, text};
use serde_json::Value;
use std::sync::Arc;

/// Error of reading a definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDefinition {
    #[error("the definition has no {0}")]
    Missing(&'static str),
    #[error("the definition has no storage version")]
    NoStorageVersion,
}

/// Scope of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// Conversion strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// Only `apiVersion` changes.
    None,
    Webhook(Webhook),
}

/// A conversion webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub target: WebhookTarget,
    /// PEM; empty to use the system's trust roots.
    pub ca_bundle: Vec<u8>,
    /// Supported ConversionReview versions, preferred first.
    pub review_versions: Vec<String>,
}

/// Endpoint of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WebhookTarget {
    Url(String),
    Service { namespace: String, name: String, path: String, port: u16 },
}

/// A parsed CustomResourceDefinition.
#[derive(Debug)]
pub struct Definition {
    pub name: String,
    pub uid: String,
    pub group: String,
    /// Requested names (`spec.names`).
    pub names: Names,
    /// Accepted names (`status.acceptedNames`), used by discovery and routes.
    pub accepted_names: Names,
    pub scope: Scope,
    pub versions: Vec<Arc<Version>>,
    pub conversion: Conversion,
    pub stored_versions: Vec<String>,
    pub conditions: Conditions,
    /// Being deleted.
    pub terminating: bool,
}

impl Definition {
    /// Parses a validated definition. Schemas stay text until a version is used.
    pub fn of(definition: &Value) -> Result<Self, InvalidDefinition> {
        let spec = definition.get("spec").ok_or(InvalidDefinition::Missing("spec"))?;
        let status = definition.get("status").unwrap_or(&Value::Null);
        let meta = object_meta::of(definition);
        let group = required(spec, "group")?;
        let names = Names::of(spec.get("names").unwrap_or(&Value::Null));
        if names.plural.is_empty() {
            return Err(InvalidDefinition::Missing("spec.names.plural"));
        }
        if names.kind.is_empty() {
            return Err(InvalidDefinition::Missing("spec.names.kind"));
        }
        let scope = if text(spec, "scope") == "Namespaced" { Scope::Namespaced } else { Scope::Cluster };
        let namespaced = scope == Scope::Namespaced;
        let preserve_unknown = spec.get("preserveUnknownFields") == Some(&Value::Bool(true));
        let versions: Vec<_> = list(spec, "versions")
            .iter()
            .map(|version| {
                let warning = standard_warning(version, list(spec, "versions"), &group, &names.kind);
                Arc::new(Version::of(version, &group, &names.kind, namespaced, preserve_unknown, warning))
            })
            .collect();
        if !versions.iter().any(|version| version.storage) {
            return Err(InvalidDefinition::NoStorageVersion);
        }
        Ok(Self {
            name: object_meta::text(meta, "name").to_owned(),
            uid: object_meta::text(meta, "uid").to_owned(),
            group,
            names,
            accepted_names: Names::of(status.get("acceptedNames").unwrap_or(&Value::Null)),
            scope,
            versions,
            conversion: conversion(spec),
            stored_versions: strings(status, "storedVersions").map(str::to_owned).collect(),
            conditions: Conditions::of(definition),
            terminating: !object_meta::text(meta, "deletionTimestamp").is_empty(),
        })
    }

    pub fn version(&self, name: &str) -> Option<&Arc<Version>> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// Returns the storage version.
    pub fn storage_version(&self) -> &Arc<Version> {
        // `of` refuses a definition without one.
        let stored = self.versions.iter().find(|version| version.storage);
        stored.unwrap_or(&self.versions[0])
    }

    pub fn served_versions(&self) -> impl Iterator<Item = &Arc<Version>> {
        self.versions.iter().filter(|version| version.served)
    }

    pub fn is_established(&self) -> bool {
        self.conditions.is_true(ESTABLISHED)
    }
}

/// Returns the default deprecation warning, which names the version to use instead.
fn standard_warning(version: &Value, versions: &[Value], group: &str, kind: &str) -> String {
    let name = text(version, "name");
    let better = |other: &&str| compare_versions(other, name).is_gt();
    let live = versions.iter().filter(|other| flag(other, "served") && !flag(other, "deprecated"));
    let best = live
        .map(|other| text(other, "name"))
        .filter(better)
        .max_by(|one, other| compare_versions(one, other));
    let instead = best.map(|best| format!("; use {group}/{best} {kind}")).unwrap_or_default();
    format!("{group}/{name} {kind} is deprecated{instead}")
}

fn required(value: &Value, key: &'static str) -> Result<String, InvalidDefinition> {
    let found = text(value, key);
    if found.is_empty() { Err(InvalidDefinition::Missing(key)) } else { Ok(found.to_owned()) }
}

fn conversion(spec: &Value) -> Conversion {
    let webhook = spec.get("conversion").filter(|conversion| text(conversion, "strategy") == "Webhook");
    webhook.and_then(webhook_of).map_or(Conversion::None, Conversion::Webhook)
}

impl WebhookTarget {
    /// Reads the `clientConfig` of a webhook; `None` if it names neither a URL nor a service.
    pub fn read(config: &Value) -> Option<Self> {
        let service = match (config.get("url").and_then(Value::as_str), config.get("service")) {
            (Some(url), _) => return Some(Self::Url(url.to_owned())),
            (None, service) => service?,
        };
        let port = service.get("port").and_then(Value::as_u64).and_then(|port| port.try_into().ok());
        Some(Self::Service {
            namespace: text(service, "namespace").to_owned(),
            name: text(service, "name").to_owned(),
            path: text(service, "path").to_owned(),
            port: port.unwrap_or(443),
        })
    }
}

fn webhook_of(conversion: &Value) -> Option<Webhook> {
    let webhook = conversion.get("webhook")?;
    let config = webhook.get("clientConfig")?;
    let target = WebhookTarget::read(config)?;
    Some(Webhook {
        target,
        ca_bundle: ca_bundle(config),
        review_versions: strings(webhook, "conversionReviewVersions").map(str::to_owned).collect(),
    })
}

/// Returns the bytes of a client configuration's `caBundle`; white space counts as empty.
pub(crate) fn ca_bundle(config: &Value) -> Vec<u8> {
    use base64::Engine;
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(text(config, "caBundle")).unwrap_or_default();
    if bytes.iter().all(u8::is_ascii_whitespace) { Vec::new() } else { bytes }
}
