//! Policy rules: what they allow, and whether they cover one another.

use std::collections::{BTreeMap, BTreeSet};

use orlop_api::go_text;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::request::Attributes;

/// Matches every verb, group, resource or URL.
pub(super) const ALL: &str = "*";

/// A rule of a role: verbs on resources, or on URLs that are not resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PolicyRule {
    /// Verbs; `*` for all.
    #[serde(deserialize_with = "null_is_empty")]
    pub verbs: Vec<Box<str>>,
    /// API groups; `*` for all, empty for core.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<Box<str>>,
    /// Resources: `pods`, `pods/log`, `*/scale`, `*`.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Box<str>>,
    /// Names of objects; empty for all.
    #[serde(deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<Box<str>>,
    /// Paths; a trailing `*` is a wildcard.
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<Box<str>>,
}

fn null_is_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Box<str>>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl PolicyRule {
    /// Returns the rules of a role. An unreadable rule grants nothing.
    pub fn all_of(role: &Value) -> Vec<Self> {
        let rules = role.get("rules").and_then(Value::as_array).into_iter().flatten();
        rules.filter_map(|rule| Self::deserialize(rule).ok()).collect()
    }

    /// Returns true if the rule allows a request.
    pub fn allows(&self, attributes: &Attributes) -> bool {
        if !has_or_all(&self.verbs, attributes.verb.as_str()) {
            return false;
        }
        if !attributes.is_resource_request {
            return self.non_resource_urls.iter().any(|url| url_covers(url, &attributes.path));
        }
        has_or_all(&self.api_groups, &attributes.group)
            && self.matches_resource(&attributes.resource, attributes.subresource_name())
            && (self.resource_names.is_empty() || has(&self.resource_names, attributes.object_name()))
    }

    fn matches_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|rule| {
            if &**rule == ALL {
                return true;
            }
            if subresource.is_empty() {
                return &**rule == resource;
            }
            let before = rule.strip_suffix(subresource).and_then(|rest| rest.strip_suffix('/'));
            before.is_some_and(|before| before == ALL || before == resource)
        })
    }

    /// Splits the rule into rules of one verb and one group, resource and name, or one verb and one URL.
    pub fn broken_down(&self) -> Vec<Self> {
        let one = |text: &str| vec![text.into()];
        let mut rules = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let rule = Self {
                        verbs: one(verb),
                        api_groups: one(group),
                        resources: one(resource),
                        ..Self::default()
                    };
                    if self.resource_names.is_empty() {
                        rules.push(rule);
                        continue;
                    }
                    rules.extend(
                        self.resource_names
                            .iter()
                            .map(|name| Self { resource_names: one(name), ..rule.clone() }),
                    );
                }
            }
        }
        for url in &self.non_resource_urls {
            for verb in &self.verbs {
                rules.push(Self { verbs: one(verb), non_resource_urls: one(url), ..Self::default() });
            }
        }
        rules
    }

    /// Returns the number of rules that this one is broken down into.
    fn part_count(&self) -> usize {
        let resources =
            [self.api_groups.len(), self.resources.len(), self.resource_names.len().max(1)].into_iter();
        let resources = resources.fold(self.verbs.len(), usize::saturating_mul);
        resources.saturating_add(self.non_resource_urls.len().saturating_mul(self.verbs.len()))
    }

    /// Returns true if the rule allows all that another one allows. If it is not broken down, several rules together may
    /// do so where no single one does.
    fn covers(&self, part: &Self) -> bool {
        let all = |own: &[Box<str>], other: &[Box<str>]| {
            has(own, ALL) || other.iter().all(|wanted| has(own, wanted))
        };
        let names = self.resource_names.is_empty()
            || (!part.resource_names.is_empty()
                && part.resource_names.iter().all(|name| has(&self.resource_names, name)));
        let covered_url = |url: &str| self.non_resource_urls.iter().any(|own| url_covers(own, url));
        all(&self.verbs, &part.verbs)
            && all(&self.api_groups, &part.api_groups)
            && part.resources.iter().all(|resource| self.covers_resource(resource))
            && names
            && part.non_resource_urls.iter().all(|url| covered_url(url))
    }

    fn covers_resource(&self, resource: &str) -> bool {
        if has_or_all(&self.resources, resource) {
            return true;
        }
        let Some((_, subresource)) = resource.split_once('/') else { return false };
        self.resources.iter().any(|own| own.strip_prefix("*/") == Some(subresource))
    }

    /// Returns the rule in the form of escalation errors, `{APIGroups:[""], Resources:["pods"], Verbs:["get"]}`.
    pub fn to_compact_text(&self) -> String {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let given = parts.iter().filter(|(_, values)| !values.is_empty());
        let given: Vec<String> = given.map(|(name, values)| format!("{name}:{}", quoted(values))).collect();
        format!("{{{}}}", given.join(", "))
    }
}

/// Parts of rules that are compared one by one. A role of a few kilobytes may name billions.
const PARTS_MAX: usize = 20_000;

/// Returns the parts of `wanted` that no rule of `held` covers; `None` if there are too many to tell.
pub fn uncovered(held: &[PolicyRule], wanted: &[PolicyRule]) -> Option<Vec<PolicyRule>> {
    let is_covered = |wanted: &PolicyRule| held.iter().any(|rule| rule.covers(wanted));
    // Few need to be broken down: most are covered as a whole.
    let divided: Vec<&PolicyRule> = wanted.iter().filter(|rule| !is_covered(rule)).collect();
    let parts = divided.iter().fold(0_usize, |sum, rule| sum.saturating_add(rule.part_count()));
    let parts = (parts <= PARTS_MAX).then(|| divided.into_iter().flat_map(PolicyRule::broken_down))?;
    Some(parts.filter(|part| !is_covered(part)).collect())
}

/// Describes broken-down rules, those of one resource together, sorted.
pub fn describe(rules: &[PolicyRule]) -> String {
    let mut texts = BTreeSet::new();
    let mut by_resource: BTreeMap<_, PolicyRule> = BTreeMap::new();
    for rule in rules {
        if let ([group], [resource], [] | [_], []) =
            (&*rule.api_groups, &*rule.resources, &*rule.resource_names, &*rule.non_resource_urls)
        {
            let merged = by_resource
                .entry((group, resource, &rule.resource_names))
                .or_insert_with(|| PolicyRule { verbs: Vec::new(), ..rule.clone() });
            merged.verbs.extend(rule.verbs.iter().cloned());
        } else {
            texts.insert(rule.to_compact_text());
        }
    }
    texts.extend(by_resource.values().map(PolicyRule::to_compact_text));
    texts.into_iter().collect::<Vec<_>>().join("\n")
}

/// Formats texts as Go's `%q` does.
pub(crate) fn quoted(texts: &[impl AsRef<str>]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| go_text::quote(text.as_ref())).collect();
    format!("[{}]", texts.join(" "))
}

fn has(values: &[Box<str>], wanted: &str) -> bool {
    values.iter().any(|value| &**value == wanted)
}

fn has_or_all(values: &[Box<str>], wanted: &str) -> bool {
    values.iter().any(|value| &**value == ALL || &**value == wanted)
}

/// Returns true if a rule's URL, which may end in wildcards, covers a path.
fn url_covers(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use orlop_api::query::Query;
    use serde_json::json;

    use super::*;

    fn rule(value: Value) -> PolicyRule {
        serde_json::from_value(value).unwrap()
    }

    fn allows(rule: &PolicyRule, method: &str, uri: &str) -> bool {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        rule.allows(&Attributes::of(&method.parse().unwrap(), path, &Query::parse(query)))
    }

    #[test]
    fn rule_matches_resources_subresources_and_names() {
        let pods = rule(json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}));
        assert!(allows(&pods, "GET", "/api/v1/namespaces/a/pods/x"));
        assert!(allows(&pods, "GET", "/api/v1/pods"));
        assert!(!allows(&pods, "GET", "/api/v1/pods?watch=1"));
        assert!(!allows(&pods, "GET", "/api/v1/namespaces/a/pods/x/log"));
        assert!(!allows(&pods, "GET", "/apis/apps/v1/namespaces/a/pods/x"));
        let scale = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/scale", "pods/log"]}));
        assert!(allows(&scale, "PUT", "/apis/apps/v1/namespaces/a/deployments/x/scale"));
        assert!(allows(&scale, "GET", "/api/v1/namespaces/a/pods/x/log"));
        assert!(!allows(&scale, "PUT", "/apis/apps/v1/namespaces/a/deployments/x/status"));
        assert!(!allows(&scale, "PUT", "/apis/apps/v1/namespaces/a/deployments/x"));
        assert!(!allows(&scale, "PUT", "/apis/apps/v1/namespaces/a/scale/x"));
        let all = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        assert!(allows(&all, "DELETE", "/apis/x/v1/anythings/y/z"));
        assert!(!allows(&all, "GET", "/metrics"));
        // pods/* is a literal: Kubernetes has no such wildcard.
        let literal = rule(json!({"verbs": ["*"], "apiGroups": [""], "resources": ["pods/*"]}));
        assert!(!allows(&literal, "GET", "/api/v1/namespaces/a/pods/x/log"));
    }

    #[test]
    fn resource_names_bind_collections_only_by_field_selector() {
        let named = rule(
            json!({"verbs": ["*"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["s"]}),
        );
        assert!(allows(&named, "GET", "/api/v1/namespaces/a/secrets/s"));
        assert!(!allows(&named, "GET", "/api/v1/namespaces/a/secrets/t"));
        assert!(!allows(&named, "GET", "/api/v1/namespaces/a/secrets"));
        assert!(!allows(&named, "POST", "/api/v1/namespaces/a/secrets"));
        assert!(!allows(&named, "DELETE", "/api/v1/namespaces/a/secrets"));
        assert!(allows(
            &named,
            "GET",
            "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3Ds&watch=1"
        ));
        assert!(!allows(&named, "GET", "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name!%3Ds"));
        assert!(!allows(&named, "DELETE", "/api/v1/namespaces/a/secrets?fieldSelector=metadata.name%3Ds"));
    }

    #[test]
    fn urls_match_exactly_or_by_trailing_wildcard() {
        let urls = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/api/*", "/healthz"]}));
        assert!(allows(&urls, "GET", "/healthz"));
        assert!(allows(&urls, "GET", "/api/v1"));
        assert!(!allows(&urls, "GET", "/healthz/etcd"));
        assert!(!allows(&urls, "POST", "/healthz"));
        assert!(allows(&rule(json!({"verbs": ["*"], "nonResourceURLs": ["*"]})), "GET", "/metrics"));
    }

    #[test]
    fn missing_permissions_are_described_as_kubernetes_does() {
        let held = [rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "*/log"]}))];
        let wanted = [
            rule(
                json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/log", "pods/exec"]}),
            ),
            rule(
                json!({"verbs": ["get"], "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"]}),
            ),
            rule(json!({"verbs": ["get"], "nonResourceURLs": ["/x", "/y"]})),
        ];
        assert_eq!(
            describe(&uncovered(&held, &wanted).unwrap()),
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["list"]}
{APIGroups:[""], Resources:["pods/exec"], Verbs:["get" "list"]}
{APIGroups:[""], Resources:["pods/log"], Verbs:["list"]}
{APIGroups:[""], Resources:["secrets"], ResourceNames:["a"], Verbs:["get"]}
{NonResourceURLs:["/x"], Verbs:["get"]}
{NonResourceURLs:["/y"], Verbs:["get"]}"#
        );
        let named =
            [rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["a"]}))];
        assert_eq!(uncovered(&named, &wanted[1..2]), Some(Vec::new()));
        assert_eq!(uncovered(&named, &wanted[..1]).unwrap().len(), 6);
    }

    /// Broken down, a role of 10 kB would be 64 million rules.
    #[test]
    fn countless_parts_are_not_counted() {
        let many = |start: &str| (0..400).map(|number| format!("{start}{number}")).collect::<Vec<_>>();
        let huge = rule(
            json!({"verbs": many("v"), "apiGroups": many("g"), "resources": many("r"), "resourceNames": ["a"]}),
        );
        assert_eq!(uncovered(&[], std::slice::from_ref(&huge)), None);
        let everything = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}));
        for held in [huge.clone(), everything] {
            assert_eq!(uncovered(&[held], std::slice::from_ref(&huge)), Some(Vec::new()));
        }
    }
}
