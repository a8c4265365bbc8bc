//! Definitions and permissions, as `slate-operator crd` prints them.

/// The CustomResourceDefinition of `Server`.
pub const SERVERS: &str = include_str!("../chart/crds/servers.yaml");
/// The CustomResourceDefinition of `Collection`.
pub const COLLECTIONS: &str = include_str!("../chart/crds/collections.yaml");
/// Namespace of the operator.
pub const NAMESPACE: &str = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: slate-system\n";
/// ServiceAccount, roles and bindings of the operator.
pub const RBAC: &str = include_str!("../manifests/rbac.yaml");

/// Returns everything as one stream of YAML documents.
pub fn all() -> String {
    [SERVERS, COLLECTIONS, NAMESPACE, RBAC].join("---\n")
}
