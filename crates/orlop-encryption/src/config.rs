//! The configuration file: strict decoding and validation, in Kubernetes' words.

use std::{collections::BTreeSet, path::Path, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_api::{
    decode::{self, StrictOrder},
    field_error::{FieldError, FieldPath, aggregate},
    group_version::GroupResource,
};
use serde::Deserialize;

/// Larger files are not configurations.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Time of a call to a KMS plugin, unless configured.
const KMS_TIMEOUT: Duration = Duration::from_secs(3);

/// A configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConfigFile {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    #[serde(default)]
    resources: Vec<ResourceConfig>,
}

/// The providers of some resources.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ResourceConfig {
    #[serde(default)]
    pub(crate) resources: Vec<String>,
    #[serde(default)]
    pub(crate) providers: Vec<ProviderConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderConfig {
    pub(crate) aesgcm: Option<KeysConfig>,
    pub(crate) aescbc: Option<KeysConfig>,
    pub(crate) secretbox: Option<KeysConfig>,
    pub(crate) identity: Option<IdentityConfig>,
    pub(crate) kms: Option<KmsConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeysConfig {
    #[serde(default)]
    pub(crate) keys: Vec<KeyConfig>,
}

/// A key. Not `Debug`: it is secret.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyConfig {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) secret: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdentityConfig {}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct KmsConfig {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default, rename = "cachesize")]
    cache_size: Option<i32>,
    #[serde(default)]
    pub(crate) endpoint: String,
    timeout: Option<String>,
}

impl KmsConfig {
    /// Returns the time of a call; `None` if it is not a positive duration.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        let Some(text) = &self.timeout else { return Some(KMS_TIMEOUT) };
        orlop_duration::parse_unsigned(text).ok().filter(|timeout| !timeout.is_zero())
    }
}

impl KeyConfig {
    /// Returns the key's bytes; empty if they are not base64.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        STANDARD.decode(&self.secret).unwrap_or_default()
    }
}

/// Reads a configuration file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let failed = |why: &dyn std::fmt::Display| {
        let path = path.display();
        ConfigError(format!(
            "error reading encryption provider configuration file {:?}: {why}",
            path.to_string()
        ))
    };
    let metadata = std::fs::metadata(path).map_err(|error| failed(&error))?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(failed(&"the file is too large"));
    }
    let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
    if bytes.is_empty() {
        let path = path.display().to_string();
        return Err(ConfigError(format!("encryption provider configuration file {path:?} is empty")));
    }
    Ok(bytes)
}

/// Parses a configuration in YAML or JSON.
pub(crate) fn parse(bytes: &[u8]) -> Result<Vec<ResourceConfig>, ConfigError> {
    let undecodable =
        |why: String| ConfigError(format!("error decoding encryption provider configuration file: {why}"));
    let decoded = decode::yaml_or_json(bytes).map_err(|error| undecodable(error.to_string()))?;
    let duplicates = decoded.strict_errors(bytes, Vec::new(), StrictOrder::Document);
    if !duplicates.is_empty() {
        return Err(undecodable(decode::strict_error(&duplicates)));
    }
    let text = |field: &str| decoded.value.get(field).and_then(|text| text.as_str()).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    if api_version != "apiserver.config.k8s.io/v1" || kind != "EncryptionConfiguration" {
        return Err(undecodable(format!(
            "no kind {kind:?} is registered for version {api_version:?}: want kind: EncryptionConfiguration and \
             apiVersion: apiserver.config.k8s.io/v1"
        )));
    }
    // Its errors quote unknown fields and wrong types, and never a secret: secrets are text, as they should be.
    let file: ConfigFile = serde_json::from_value(decoded.value)
        .map_err(|error| undecodable(format!("strict decoding error: {error}")))?;
    let errors = validate(&file.resources);
    if errors.is_empty() { Ok(file.resources) } else { Err(ConfigError(aggregate(&errors))) }
}

fn validate(resources: &[ResourceConfig]) -> Vec<FieldError> {
    let root = FieldPath::root("resources");
    let mut errors = Vec::new();
    if resources.is_empty() {
        return vec![FieldError::required(&root, "at least one resources is required")];
    }
    let mut plugins = BTreeSet::new();
    for (index, config) in resources.iter().enumerate() {
        let (names, providers) = (root.index(index).child("resources"), root.index(index).child("providers"));
        if config.resources.is_empty() {
            errors.push(FieldError::required(&names, format!("at least one {names} is required")));
        }
        validate_overlap(&config.resources, &names, &mut errors);
        for (index, name) in config.resources.iter().enumerate() {
            if let Some(why) = problem_of_resource(name) {
                errors.push(FieldError::invalid(&names.index(index), name.as_str(), why));
            }
        }
        if config.providers.is_empty() {
            errors.push(FieldError::required(&providers, format!("at least one {providers} is required")));
        }
        for (index, provider) in config.providers.iter().enumerate() {
            provider.validate(&providers.index(index), &mut plugins, &mut errors);
        }
    }
    errors.extend(masked(resources));
    errors
}

/// Parses `resource.group`; `*.` is everything of the core group.
pub(crate) fn group_resource(name: &str) -> GroupResource {
    match name.split_once('.') {
        Some((resource, group)) => GroupResource::new(group, resource),
        None => GroupResource::new("", name),
    }
}

fn validate_overlap(resources: &[String], path: &FieldPath, errors: &mut Vec<FieldError>) {
    let parsed: Vec<GroupResource> = resources.iter().map(|name| group_resource(name)).collect();
    let (mut duplicate, mut overlap) = (false, false);
    for (index, one) in parsed.iter().enumerate() {
        for other in parsed.iter().skip(index + 1) {
            let everything = |resource: &GroupResource| resource.group == "*" && resource.resource == "*";
            if one == other {
                duplicate = true;
            } else {
                let wildcard = one.resource == "*" || other.resource == "*";
                overlap |= everything(one) || everything(other) || (one.group == other.group && wildcard);
            }
        }
    }
    let mut refuse = |why: &str| errors.push(FieldError::invalid(path, resources.to_vec(), why));
    if duplicate {
        refuse("the same resource cannot be specified multiple times");
    }
    if overlap {
        refuse(
            "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they \
             will be masked",
        );
    }
}

fn problem_of_resource(name: &str) -> Option<&'static str> {
    let resource = group_resource(name);
    if name.to_lowercase() != name {
        Some("resource name should not contain capital letters")
    } else if name == "*" {
        Some("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources")
    } else if matches!(name, "apiserveripinfo" | "serviceipallocations" | "servicenodeportallocations") {
        Some("resources which do not have REST API/s cannot be encrypted")
    } else if resource.group == "events.k8s.io" {
        Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the \
             config file",
        )
    } else if resource.group == "extensions" {
        Some("'extensions' group has been removed and cannot be used for encryption")
    } else if resource.group == "*" && resource.resource != "*" {
        Some("encrypting the same resource across groups is not supported")
    } else {
        None
    }
}

/// Reports entries that an earlier wildcard makes ineffective.
fn masked(resources: &[ResourceConfig]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut wildcards: Vec<GroupResource> = Vec::new();
    for (index, config) in resources.iter().enumerate() {
        let path = FieldPath::root("resources").index(index).child("resources");
        for (index, name) in config.resources.iter().enumerate() {
            let resource = group_resource(name);
            let masks = |earlier: &&GroupResource| earlier.group == "*" || earlier.group == resource.group;
            if let Some(earlier) = wildcards.iter().find(masks) {
                let why = format!(
                    "resource {name:?} is masked by earlier rule {:?}",
                    format!("*.{}", earlier.group)
                );
                errors.push(FieldError::invalid(&path.index(index), name.as_str(), why));
            }
        }
        wildcards.extend(
            config.resources.iter().map(|name| group_resource(name)).filter(|name| name.resource == "*"),
        );
    }
    errors
}

impl ProviderConfig {
    fn validate(&self, path: &FieldPath, plugins: &mut BTreeSet<String>, errors: &mut Vec<FieldError>) {
        let found = [self.aesgcm.is_some(), self.aescbc.is_some(), self.secretbox.is_some()]
            .into_iter()
            .chain([self.identity.is_some(), self.kms.is_some()])
            .filter(|found| *found)
            .count();
        if found != 1 {
            let why = match found {
                0 => {
                    "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
                }
                _ => {
                    "more than one provider specified in a single element, should split into different list elements"
                }
            };
            errors.push(FieldError::invalid_printed(path, "{...}", why));
            return;
        }
        const AES: &[usize] = &[16, 24, 32];
        if let Some(kms) = &self.kms {
            kms.validate(&path.child("kms"), plugins, errors);
        }
        let ciphers = [
            ("aesgcm", &self.aesgcm, AES),
            ("aescbc", &self.aescbc, AES),
            ("secretbox", &self.secretbox, &[32]),
        ];
        for (name, keys, lengths) in ciphers {
            if let Some(keys) = keys {
                keys.validate(&path.child(name).child("keys"), lengths, errors);
            }
        }
    }
}

impl KeysConfig {
    fn validate(&self, path: &FieldPath, lengths: &[usize], errors: &mut Vec<FieldError>) {
        if self.keys.is_empty() {
            errors.push(FieldError::required(path, "at least one keys is required"));
        }
        for (index, key) in self.keys.iter().enumerate() {
            let (name, secret) = (path.index(index).child("name"), path.index(index).child("secret"));
            if key.name.is_empty() {
                errors.push(FieldError::required(&name, "name is a mandatory field for a key"));
            }
            // The name ends at the colon in stored values.
            if key.name.contains(':') {
                errors.push(FieldError::invalid(&name, key.name.as_str(), "must not contain ':'"));
            }
            if key.secret.is_empty() {
                errors.push(FieldError::required(&secret, "secret is a mandatory field for a key"));
                continue;
            }
            match STANDARD.decode(&key.secret) {
                Err(_) => {
                    errors.push(FieldError::invalid(&secret, "REDACTED", "secrets must be base64 encoded"));
                }
                Ok(bytes) if !lengths.contains(&bytes.len()) => {
                    let lengths = lengths.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
                    let why = format!(
                        "secret is not of the expected length, got {}, expected one of [{lengths}]",
                        bytes.len()
                    );
                    errors.push(FieldError::invalid(&secret, "REDACTED", why));
                }
                Ok(_) => {}
            }
        }
    }
}

impl KmsConfig {
    fn validate(&self, path: &FieldPath, plugins: &mut BTreeSet<String>, errors: &mut Vec<FieldError>) {
        let (name, endpoint) = (path.child("name"), path.child("endpoint"));
        let text = self.name.as_str();
        if text.is_empty() {
            errors.push(FieldError::required(&name, "name is a mandatory field for a provider"));
        }
        if text.contains(':') {
            let why = format!("invalid KMS provider name {text}, must not contain ':'");
            errors.push(FieldError::invalid(&name, text, why));
        }
        if !plugins.insert(text.to_owned()) {
            let why = format!("duplicate KMS provider name {text}, names must be unique");
            errors.push(FieldError::invalid(&name, text, why));
        }
        if self.timeout().is_none() {
            let timeout = self.timeout.as_deref().unwrap_or_default();
            errors.push(FieldError::invalid(
                &path.child("timeout"),
                timeout,
                "timeout should be a positive value",
            ));
        }
        if self.endpoint.is_empty() {
            errors.push(FieldError::invalid(&endpoint, "", "endpoint is a mandatory field for a kms"));
        } else if !self.endpoint.starts_with("unix://") {
            let scheme = self.endpoint.split_once(':').map_or("", |(scheme, _)| scheme);
            let why = format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported");
            errors.push(FieldError::invalid(&endpoint, self.endpoint.as_str(), why));
        }
        if let Some(size) = self.cache_size {
            errors.push(FieldError::invalid(
                &path.child("cachesize"),
                size,
                "cachesize is not supported in v2",
            ));
        }
        if self.api_version != "v2" {
            let why = "unsupported apiVersion apiVersion for KMS provider, only v2 is supported";
            errors.push(FieldError::invalid(&path.child("apiVersion"), self.api_version.as_str(), why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(resources: &str) -> String {
        let text = format!(
            "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources: {resources}"
        );
        match parse(text.as_bytes()) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn invalid_configurations_are_refused_in_kubernetes_words() {
        const KEY: &str = "MDEyMzQ1Njc4OWFiY2RlZg==";
        for (resources, expected) in [
            ("[]".to_owned(), "resources: Required value: at least one resources is required"),
            ("[{resources: [secrets]}]".to_owned(), "resources[0].providers: Required value: at least one resources[0].providers is required"),
            ("[{providers: [{identity: {}}]}]".to_owned(), "resources[0].resources: Required value: at least one resources[0].resources is required"),
            ("[{resources: ['*'], providers: [{identity: {}}]}]".to_owned(), "resources[0].resources[0]: Invalid value: \"*\": use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"),
            ("[{resources: [Secrets], providers: [{identity: {}}]}]".to_owned(), "resources[0].resources[0]: Invalid value: \"Secrets\": resource name should not contain capital letters"),
            ("[{resources: [secrets, secrets], providers: [{identity: {}}]}]".to_owned(), "resources[0].resources: Invalid value: [\"secrets\",\"secrets\"]: the same resource cannot be specified multiple times"),
            ("[{resources: [secrets], providers: [{aesgcm: {keys: []}}]}]".to_owned(), "resources[0].providers[0].aesgcm.keys: Required value: at least one keys is required"),
            ("[{resources: [secrets], providers: [{aesgcm: {keys: [{name: a, secret: '*'}]}}]}]".to_owned(), "resources[0].providers[0].aesgcm.keys[0].secret: Invalid value: \"REDACTED\": secrets must be base64 encoded"),
            (format!("[{{resources: [secrets], providers: [{{secretbox: {{keys: [{{name: a, secret: {KEY}}}]}}}}]}}]"), "resources[0].providers[0].secretbox.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the expected length, got 16, expected one of [32]"),
            ("[{resources: [secrets], providers: [{kms: {apiVersion: v2, name: a, endpoint: 'tcp://x'}}]}]".to_owned(), "resources[0].providers[0].kms.endpoint: Invalid value: \"tcp://x\": unsupported scheme \"tcp\" for KMS provider, only unix is supported"),
        ] {
            assert_eq!(refused(&resources), expected, "{resources}");
        }
        for (resources, part) in [
            ("[{resources: [secrets, '*.'], providers: [{identity: {}}]}]", "overlapping resources"),
            (
                "[{resources: ['*.*'], providers: [{identity: {}}]}, {resources: [pods], providers: [{identity: {}}]}]",
                "resource \"pods\" is masked by earlier rule \"*.*\"",
            ),
            ("[{resources: [secrets], providers: [{}]}]", "does not contain any of the expected providers"),
            (
                "[{resources: [secrets], providers: [{identity: {}, aescbc: {keys: []}}]}]",
                "more than one provider",
            ),
            (
                "[{resources: [secrets], providers: [{identity: {}}], provider: []}]",
                "unknown field `provider`",
            ),
            (
                "[{resources: [secrets], providers: [{kms: {apiVersion: v1, name: a, endpoint: 'unix:///x'}}]}]",
                "only v2 is supported",
            ),
            (
                "[{resources: [secrets], providers: [{kms: {apiVersion: v2, name: a, endpoint: 'unix:///x', timeout: 0s}}]}]",
                "should be a positive value",
            ),
        ] {
            assert!(refused(resources).contains(part), "{resources}: {}", refused(resources));
        }
        assert!(parse(b"kind: Policy").is_err());
    }

    #[test]
    fn secrets_do_not_appear_in_errors() {
        let said = refused(
            "[{resources: [secrets], providers: [{aesgcm: {keys: [{name: a, secret: hunter2hunter2}]}}]}]",
        );
        assert!(!said.is_empty() && !said.contains("hunter2"), "{said}");
    }
}
