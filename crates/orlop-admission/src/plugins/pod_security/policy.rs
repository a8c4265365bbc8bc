//! Levels and versions of the Pod Security Standards, and the labels of namespaces that name them.

use std::fmt;

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Map, Value};

/// Minor version of Kubernetes whose standards are known.
const KUBERNETES_MINOR: u32 = 37;

/// A level, from the least strict to the strictest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    #[default]
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        match text {
            "privileged" => Ok(Self::Privileged),
            "baseline" => Ok(Self::Baseline),
            "restricted" => Ok(Self::Restricted),
            _ => Err("must be one of privileged, baseline, restricted"),
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        })
    }
}

/// A version of the standards: a minor version of Kubernetes, or the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    Minor(u32),
    #[default]
    Latest,
}

impl Version {
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let minor = text.strip_prefix("v1.").filter(|minor| {
            let is_number = !minor.is_empty() && minor.bytes().all(|byte| byte.is_ascii_digit());
            is_number && (*minor == "0" || !minor.starts_with('0'))
        });
        let minor = minor.and_then(|minor| minor.parse().ok());
        minor.map(Self::Minor).ok_or("must be \"latest\" or \"v1.x\"")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minor(minor) => write!(f, "v1.{minor}"),
            Self::Latest => f.write_str("latest"),
        }
    }
}

/// A level in a version: `restricted:latest`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl LevelVersion {
    /// Returns level and version as metrics show them.
    pub(super) fn labels(self) -> [String; 2] {
        let version = match self.version {
            _ if self.level == Level::Privileged => Version::Latest.to_string(),
            Version::Minor(minor) if minor > KUBERNETES_MINOR => "future".to_owned(),
            version => version.to_string(),
        };
        [self.level.to_string(), version]
    }

    fn is_equivalent(self, other: Self) -> bool {
        self == other || (self.level == Level::Privileged && other.level == Level::Privileged)
    }
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}

/// Levels that a namespace holds its pods to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) audit: LevelVersion,
    pub(super) warn: LevelVersion,
}

pub(super) const PREFIX: &str = "pod-security.kubernetes.io/";

impl Policy {
    /// Returns true if nothing is checked.
    pub(super) fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|mode| mode.level == Level::Privileged)
    }

    pub(super) fn is_equivalent(&self, other: &Self) -> bool {
        self.enforce.is_equivalent(other.enforce)
            && self.audit.is_equivalent(other.audit)
            && self.warn.is_equivalent(other.warn)
    }

    /// Reads the policy from the labels of a namespace; `self` is the default. There is a policy even if labels are
    /// wrong: the strictest to enforce, none to audit and warn of.
    pub(super) fn of_labels(self, labels: &Map<String, Value>) -> (Self, Vec<FieldError>) {
        let (mut policy, mut errors) = (self, Vec::new());
        let get = |name: &str| labels.get(&format!("{PREFIX}{name}")).and_then(Value::as_str);
        let mut refuse = |name: &str, value: &str, why: &str| {
            let path = FieldPath::root("metadata").child("labels").key(&format!("{PREFIX}{name}"));
            errors.push(FieldError::invalid(&path, value, why));
        };
        let mut has_level = [false; 3];
        let modes = [&mut policy.enforce, &mut policy.audit, &mut policy.warn];
        let defaults = [Level::Restricted, Level::Privileged, Level::Privileged];
        for (index, (mode, (name, default))) in
            modes.into_iter().zip(["enforce", "audit", "warn"].into_iter().zip(defaults)).enumerate()
        {
            if let Some(text) = get(name) {
                let parsed = Level::parse(text);
                if let Err(why) = parsed {
                    refuse(name, text, why);
                }
                mode.level = parsed.unwrap_or(default);
                // A wrong level to enforce is no reason to warn.
                if let Some(has_level) = has_level.get_mut(index) {
                    *has_level = parsed.is_ok() || name == "warn";
                }
            }
            let name = format!("{name}-version");
            if let Some(text) = get(&name) {
                let parsed = Version::parse(text);
                if let Err(why) = parsed {
                    refuse(&name, text, why);
                }
                mode.version = parsed.unwrap_or_default();
            }
        }
        let [has_enforce, _, has_warn] = has_level;
        if has_enforce && !has_warn && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if get("warn-version").is_none() {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(labels: Value) -> (String, Vec<String>) {
        let labels: Map<String, Value> = labels
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (format!("{PREFIX}{name}"), value.clone()))
            .collect();
        let (policy, errors) = Policy::default().of_labels(&labels);
        let text = format!("{} {} {}", policy.enforce, policy.audit, policy.warn);
        (text, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn labels_name_levels_and_versions() {
        assert_eq!(of(json!({})).0, "privileged:latest privileged:latest privileged:latest");
        assert_eq!(
            of(json!({"enforce": "baseline", "enforce-version": "v1.25", "audit": "restricted"})).0,
            "baseline:v1.25 restricted:latest baseline:v1.25"
        );
        assert_eq!(
            of(json!({"enforce": "restricted", "warn": "baseline"})).0,
            "restricted:latest privileged:latest baseline:latest"
        );
    }

    #[test]
    fn wrong_labels_are_errors_and_the_strictest_level_is_enforced() {
        let (policy, errors) = of(json!({"enforce": "lax", "audit": "x", "warn-version": "1.2"}));
        assert_eq!(policy, "restricted:latest privileged:latest privileged:latest");
        assert_eq!(
            errors,
            [
                "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"lax\": must be one of privileged, \
                 baseline, restricted",
                "metadata.labels[pod-security.kubernetes.io/audit]: Invalid value: \"x\": must be one of privileged, \
                 baseline, restricted",
                "metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"1.2\": must be \"latest\" or \
                 \"v1.x\"",
            ]
        );
        assert!(Version::parse("v1.01").is_err() && Version::parse("v1.0").is_ok());
    }
}
