//! OpenAPI documents. kubectl reads them to explain, validate and merge; client generators read all of them.
//!
//! Documents are built on demand and cached compressed, one per group version, for as long as the registry has the
//! same kinds. The hash of a document is that of its inputs, so the index builds none (decision 0023).

pub(crate) mod cache;
mod custom;
mod descriptions;
pub(crate) mod document;
mod parameters;
mod paths;
mod references;
mod schemas;
mod v2;
mod v3;

use orlop_api::group_version::GroupVersion;

pub(crate) use cache::Cache;

/// A version of OpenAPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpecVersion {
    V2,
    V3,
}

impl SpecVersion {
    /// Returns the prefix of references.
    fn prefix(self) -> &'static str {
        match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        }
    }
}

// === Names ===

/// Returns the base path: `/api/v1`, `/apis/apps/v1`.
pub(crate) fn base(gv: &GroupVersion) -> String {
    match gv.group.as_str() {
        "" => format!("/api/{}", gv.version),
        group => format!("/apis/{group}/{}", gv.version),
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Returns the name in operation ids: `AppsV1`, `RbacAuthorizationV1`; without the version for tags.
fn camel(gv: &GroupVersion, with_version: bool) -> String {
    let group = if gv.group.is_empty() { "core" } else { gv.group.trim_end_matches(".k8s.io") };
    let words = group.split(['.', '-', '_']);
    let version = with_version.then_some(gv.version.as_str());
    words.chain(version).map(capital).collect()
}

/// Returns the tag: `apps_v1`, `rbacAuthorization_v1`.
fn tag(gv: &GroupVersion) -> String {
    let group = camel(gv, false);
    let mut letters = group.chars();
    let first = letters.next().map(|first| first.to_lowercase().to_string()).unwrap_or_default();
    format!("{first}{}_{}", letters.as_str(), gv.version)
}

fn place(parameter: &parameters::Parameter) -> &'static str {
    if parameter.in_path { "path" } else { "query" }
}

fn reason(code: u16) -> &'static str {
    http::StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_names_follow_the_group() {
        let gv = |group: &str| GroupVersion::new(group, "v1");
        assert_eq!(camel(&gv(""), true), "CoreV1");
        assert_eq!(camel(&gv("rbac.authorization.k8s.io"), true), "RbacAuthorizationV1");
        assert_eq!(tag(&gv("rbac.authorization.k8s.io")), "rbacAuthorization_v1");
        assert_eq!(tag(&gv("stable.example.com")), "stableExampleCom_v1");
    }
}
