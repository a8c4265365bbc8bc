//! Names of kinds and resources: group, version, kind, resource.

use std::cmp::Ordering;
use std::fmt;

/// A group and a version: `v1`, `apps/v1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    pub group: String,
    pub version: String,
}

/// A string that is neither `version` nor `group/version`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected GroupVersion string: {0}")]
pub struct InvalidGroupVersion(pub String);

impl GroupVersion {
    pub fn new(group: impl Into<String>, version: impl Into<String>) -> Self {
        Self { group: group.into(), version: version.into() }
    }

    /// Parses an `apiVersion`. Empty and `/` are the empty group version, as in Kubernetes.
    pub fn parse(text: &str) -> Result<Self, InvalidGroupVersion> {
        if text.is_empty() || text == "/" {
            return Ok(Self::default());
        }
        match text.split('/').collect::<Vec<_>>().as_slice() {
            [version] => Ok(Self::new("", *version)),
            [group, version] => Ok(Self::new(*group, *version)),
            _ => Err(InvalidGroupVersion(text.to_owned())),
        }
    }

    pub fn with_kind(&self, kind: impl Into<String>) -> GroupVersionKind {
        GroupVersionKind { group: self.group.clone(), version: self.version.clone(), kind: kind.into() }
    }

    pub fn with_resource(&self, resource: impl Into<String>) -> GroupVersionResource {
        GroupVersionResource {
            group: self.group.clone(),
            version: self.version.clone(),
            resource: resource.into(),
        }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            f.write_str(&self.version)
        } else {
            write!(f, "{}/{}", self.group, self.version)
        }
    }
}

/// A kind in one version of its group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    pub group: String,
    pub version: String,
    pub kind: String,
}

impl GroupVersionKind {
    pub fn new(group: impl Into<String>, version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// Returns an object's kind; absent parts are empty, and so are all if the apiVersion is malformed.
    pub fn of(object: &serde_json::Value) -> Self {
        let text = |key: &str| object.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
        let version = GroupVersion::parse(text("apiVersion"));
        version.map(|version| version.with_kind(text("kind"))).unwrap_or_default()
    }

    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(&self.group, &self.version)
    }

    pub fn group_kind(&self) -> GroupKind {
        GroupKind { group: self.group.clone(), kind: self.kind.clone() }
    }

    /// Returns the value of `apiVersion`.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }
}

/// `apps/v1, Kind=Deployment`; the core group leaves the slash: `/v1, Kind=Pod`.
impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// A resource (lowercase plural) in one version of its group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    pub group: String,
    pub version: String,
    pub resource: String,
}

impl GroupVersionResource {
    pub fn new(group: impl Into<String>, version: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    pub fn group_version(&self) -> GroupVersion {
        GroupVersion::new(&self.group, &self.version)
    }

    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.resource.clone() }
    }
}

impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Resource={}", self.group, self.version, self.resource)
    }
}

/// A resource of a group in any version: `deployments.apps`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupResource {
    pub group: String,
    pub resource: String,
}

impl GroupResource {
    pub fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }

    pub fn is_empty(&self) -> bool {
        self.group.is_empty() && self.resource.is_empty()
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_qualified(f, &self.resource, &self.group)
    }
}

/// A kind of a group in any version: `Deployment.apps`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupKind {
    pub group: String,
    pub kind: String,
}

impl GroupKind {
    pub fn new(group: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: group.into(), kind: kind.into() }
    }
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_qualified(f, &self.kind, &self.group)
    }
}

fn write_qualified(f: &mut fmt::Formatter<'_>, name: &str, group: &str) -> fmt::Result {
    if group.is_empty() { f.write_str(name) } else { write!(f, "{name}.{group}") }
}

/// Compares versions by priority: `v2`, `v1`, `v1beta2`, `v1beta1`, `v1alpha1`, then other names in
/// alphabetical order.
pub fn compare_versions(one: &str, other: &str) -> Ordering {
    match (rank(one), rank(other)) {
        (None, None) => other.cmp(one),
        (one, other) => one.cmp(&other),
    }
}

/// Parses stability, major and minor of a Kubernetes-style version.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..digits].parse().ok()?;
    let (stability, minor) = match &rest[digits..] {
        "" => return Some((2, major, 0)),
        stage => match stage.strip_prefix("beta") {
            Some(minor) => (1, minor),
            None => (0, stage.strip_prefix("alpha")?),
        },
    };
    let plain = minor.bytes().all(|byte| byte.is_ascii_digit());
    Some((stability, major, minor.parse().ok().filter(|_| plain)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_sort_by_stability_then_number() {
        let mut versions = [
            "foo1",
            "v1alpha1",
            "v10",
            "v3beta1",
            "v1",
            "v12alpha1",
            "foo10",
            "v11beta2",
            "v2",
            "v11alpha2",
            "v1beta",
        ];
        versions.sort_by(|one, other| compare_versions(other, one));
        assert_eq!(
            versions,
            [
                "v10",
                "v2",
                "v1",
                "v11beta2",
                "v3beta1",
                "v12alpha1",
                "v11alpha2",
                "v1alpha1",
                "foo1",
                "foo10",
                "v1beta"
            ]
        );
    }

    #[test]
    fn group_versions_parse_and_print() {
        for text in ["v1", "apps/v1"] {
            assert_eq!(GroupVersion::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(GroupVersion::parse("").unwrap(), GroupVersion::default());
        assert_eq!(GroupVersion::parse("/v1").unwrap(), GroupVersion::new("", "v1"));
        assert_eq!(
            GroupVersion::parse("a/b/c").unwrap_err().to_string(),
            "unexpected GroupVersion string: a/b/c"
        );
    }

    #[test]
    fn group_kinds_and_resources_print_as_in_kubernetes() {
        assert_eq!(GroupResource::new("", "pods").to_string(), "pods");
        assert_eq!(GroupResource::new("apps", "deployments").to_string(), "deployments.apps");
        assert_eq!(GroupKind::new("apps", "Deployment").to_string(), "Deployment.apps");
        assert_eq!(GroupVersionKind::new("", "v1", "Event").to_string(), "/v1, Kind=Event");
    }
}
