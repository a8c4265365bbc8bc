//! References between definitions, and the kinds that they stand for.

use orlop_api::group_version::GroupVersionKind;
use serde_json::{Value, json};

use super::SpecVersion;

/// Name of the package of metadata types.
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Returns a reference to a definition.
pub(super) fn reference(name: &str, spec_version: SpecVersion) -> Value {
    json!({"$ref": format!("{}{name}", spec_version.prefix())})
}

/// Returns a kind as `x-kubernetes-group-version-kind` names it.
pub(super) fn kind_extension(gvk: &GroupVersionKind) -> Value {
    json!({"group": gvk.group, "kind": gvk.kind, "version": gvk.version})
}
