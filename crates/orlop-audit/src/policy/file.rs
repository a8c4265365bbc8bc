//! The policy file: strict decoding and validation, in Kubernetes' words.

use std::path::Path;

use orlop_api::{
    decode::{self, StrictOrder},
    field_error::{FieldError, FieldPath, aggregate},
    names,
};
use serde::{Deserialize, Deserializer};

use super::{GroupResources, Policy, Rule};
use crate::stage::{Level, Stage, StageSet};

/// Larger files are not policies.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// A policy cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PolicyError(String);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PolicyFile {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde_json::Value,
    #[serde(default, deserialize_with = "or_default")]
    rules: Vec<RuleFile>,
    #[serde(default, deserialize_with = "or_default")]
    omit_stages: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    omit_managed_fields: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    level: String,
    #[serde(default, deserialize_with = "or_default")]
    users: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    user_groups: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    verbs: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    resources: Vec<GroupResourcesFile>,
    #[serde(default, deserialize_with = "or_default")]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs", deserialize_with = "or_default")]
    non_resource_urls: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    omit_stages: Vec<String>,
    #[serde(default)]
    omit_managed_fields: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResourcesFile {
    #[serde(default)]
    group: String,
    #[serde(default, deserialize_with = "or_default")]
    resources: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    resource_names: Vec<String>,
}

/// Takes null for the default, as Go does.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(from).map(Option::unwrap_or_default)
}

impl Policy {
    /// Reads a policy file.
    pub fn read(path: &Path) -> Result<Self, PolicyError> {
        let failed = |why: &dyn std::fmt::Display| {
            PolicyError(format!("loading audit policy file: {why}: from file {}", path.display()))
        };
        let metadata = std::fs::metadata(path).map_err(|error| failed(&error))?;
        if metadata.len() > FILE_BYTES_MAX {
            return Err(failed(&"the file is too large"));
        }
        let bytes = std::fs::read(path).map_err(|error| failed(&error))?;
        Self::parse(&bytes).map_err(|error| failed(&error))
    }

    /// Parses a policy in YAML or JSON. Unknown and duplicate fields are errors: a misspelt field would otherwise
    /// record less than its author believes.
    pub fn parse(bytes: &[u8]) -> Result<Self, PolicyError> {
        let undecodable = |why: String| PolicyError(format!("failed decoding: {why}"));
        let decoded = decode::yaml_or_json(bytes).map_err(|error| undecodable(error.to_string()))?;
        let duplicates = decoded.strict_errors(bytes, Vec::new(), StrictOrder::Document);
        if !duplicates.is_empty() {
            return Err(undecodable(decode::strict_error(&duplicates)));
        }
        let text = |field: &str| decoded.value.get(field).and_then(|text| text.as_str()).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        if api_version != "audit.k8s.io/v1" || kind != "Policy" {
            return Err(PolicyError(format!(
                "unknown group version field {api_version}, Kind={kind} in policy: want apiVersion: \
                 audit.k8s.io/v1 and kind: Policy"
            )));
        }
        let file: PolicyFile = serde_json::from_value(decoded.value)
            .map_err(|error| undecodable(format!("strict decoding error: {error}")))?;
        debug_assert_eq!((file.api_version.as_str(), file.kind.as_str()), ("audit.k8s.io/v1", "Policy"));
        let errors = file.validate();
        if !errors.is_empty() {
            return Err(PolicyError(aggregate(&errors)));
        }
        if file.rules.is_empty() {
            return Err(PolicyError("loaded illegal policy with 0 rules".to_owned()));
        }
        Ok(file.into_policy())
    }
}

impl PolicyFile {
    fn validate(&self) -> Vec<FieldError> {
        let mut errors = Vec::new();
        check_stages(&self.omit_stages, &FieldPath::root("omitStages"), &mut errors);
        for (index, rule) in self.rules.iter().enumerate() {
            rule.validate(&FieldPath::root("rules").index(index), &mut errors);
        }
        errors
    }

    fn into_policy(self) -> Policy {
        let (omit_stages, omit_managed_fields) = (stages(&self.omit_stages), self.omit_managed_fields);
        let rule = |rule: RuleFile| Rule {
            level: Level::of(&rule.level).unwrap_or_default(),
            users: rule.users,
            groups: rule.user_groups,
            verbs: rule.verbs,
            resources: rule.resources.into_iter().map(GroupResourcesFile::into_resources).collect(),
            namespaces: rule.namespaces,
            paths: rule.non_resource_urls,
            omit_stages: omit_stages.union(stages(&rule.omit_stages)),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(omit_managed_fields),
        };
        Policy { rules: self.rules.into_iter().map(rule).collect(), omit_stages, omit_managed_fields }
    }
}

impl RuleFile {
    fn validate(&self, path: &FieldPath, errors: &mut Vec<FieldError>) {
        let level = path.child("level");
        if self.level.is_empty() {
            errors.push(FieldError::required(&level, ""));
        } else if Level::of(&self.level).is_none() {
            errors.push(FieldError::not_supported(
                &level,
                self.level.as_str(),
                &Level::ALL.map(Level::as_str),
            ));
        }
        let urls = path.child("nonResourceURLs");
        for (index, url) in self.non_resource_urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            let mut refuse = |why| errors.push(FieldError::invalid(&urls.index(index), url.as_str(), why));
            if !url.starts_with('/') {
                refuse("non-resource URL rules must begin with a '/' character");
            }
            if url.find('*').is_some_and(|place| place + 1 < url.len()) {
                refuse("non-resource URL wildcards '*' must be the final character of the rule");
            }
        }
        for resources in &self.resources {
            resources.validate(&path.child("resources"), errors);
        }
        check_stages(&self.omit_stages, &path.child("omitStages"), errors);
        let for_resources = !self.resources.is_empty() || !self.namespaces.is_empty();
        if for_resources && !self.non_resource_urls.is_empty() {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(&urls, self.non_resource_urls.clone(), why));
        }
    }
}

impl GroupResourcesFile {
    fn validate(&self, path: &FieldPath, errors: &mut Vec<FieldError>) {
        if !self.group.is_empty() && self.group != "*" {
            let problems = names::dns1123_subdomain(&self.group);
            if !problems.is_empty() {
                let why = problems.join(",");
                errors.push(FieldError::invalid(&path.child("group"), self.group.as_str(), why));
            }
        }
        if !self.resource_names.is_empty() && self.resources.is_empty() {
            let why = "using resourceNames requires at least one resource";
            errors.push(FieldError::invalid(&path.child("resourceNames"), self.resource_names.clone(), why));
        }
    }

    fn into_resources(self) -> GroupResources {
        GroupResources { group: self.group, resources: self.resources, names: self.resource_names }
    }
}

fn stage(name: &str) -> Option<Stage> {
    Stage::ALL.into_iter().find(|stage| stage.as_str() == name)
}

fn stages(names: &[String]) -> StageSet {
    names.iter().filter_map(|name| stage(name)).collect()
}

fn check_stages(names: &[String], path: &FieldPath, errors: &mut Vec<FieldError>) {
    for (index, name) in names.iter().enumerate().filter(|(_, name)| stage(name).is_none()) {
        let why = format!("allowed stages are {}", Stage::ALL.map(Stage::as_str).join(","));
        errors.push(FieldError::invalid(&path.index(index), name.as_str(), why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(rest: &str) -> String {
        let text = format!("apiVersion: audit.k8s.io/v1\nkind: Policy\n{rest}");
        Policy::parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn invalid_policies_are_refused_in_kubernetes_words() {
        for (rest, expected) in [
            ("rules: []", "loaded illegal policy with 0 rules"),
            ("rules: [{}]", "rules[0].level: Required value"),
            (
                "rules: [{level: All}]",
                "rules[0].level: Unsupported value: \"All\": supported values: \"None\", \"Metadata\", \
                 \"Request\", \"RequestResponse\"",
            ),
            (
                "rules: [{level: None, nonResourceURLs: [healthz]}]",
                "rules[0].nonResourceURLs[0]: Invalid value: \"healthz\": non-resource URL rules must begin with a \
                 '/' character",
            ),
            (
                "rules: [{level: None, nonResourceURLs: ['/a*b']}]",
                "rules[0].nonResourceURLs[0]: Invalid value: \"/a*b\": non-resource URL wildcards '*' must be the \
                 final character of the rule",
            ),
            (
                "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
                "rules[0].resources.resourceNames: Invalid value: [\"a\"]: using resourceNames requires at least \
                 one resource",
            ),
            (
                "omitStages: [Never]\nrules: [{level: None}]",
                "omitStages[0]: Invalid value: \"Never\": allowed stages are \
                 RequestReceived,ResponseStarted,ResponseComplete,Panic",
            ),
            (
                "rules: [{level: None, namespaces: [a], nonResourceURLs: ['/a']}]",
                "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both regular resources \
                 and non-resource URLs",
            ),
        ] {
            assert_eq!(refused(rest), expected, "{rest}");
        }
        assert!(refused("rules: [{level: None, user: [a]}]").contains("unknown field `user`"));
        assert!(refused("rules: [{level: None, level: None}]").contains("level"));
        assert!(
            refused("rules: [{level: None, resources: [{group: 'rbac/v1'}]}]")
                .contains("rules[0].resources.group")
        );
        assert!(refused("rules: {").starts_with("failed decoding"));
        let other =
            Policy::parse(b"{\"kind\":\"Policy\",\"apiVersion\":\"audit.k8s.io/v1beta1\"}").unwrap_err();
        assert!(other.to_string().contains("unknown group version field audit.k8s.io/v1beta1"), "{other}");
    }

    #[test]
    fn null_lists_are_empty() {
        let text = "apiVersion: audit.k8s.io/v1\nkind: Policy\nmetadata: {name: x}\nomitStages: null\n\
                    rules: [{level: Metadata, users: null, resources: null}]";
        assert!(Policy::parse(text.as_bytes()).is_ok());
    }

    #[test]
    fn unreadable_file_is_named() {
        let refused = Policy::read(Path::new("/nonexistent/policy.yaml")).unwrap_err().to_string();
        assert!(refused.starts_with("loading audit policy file:"), "{refused}");
        assert!(refused.ends_with("from file /nonexistent/policy.yaml"), "{refused}");
    }
}
