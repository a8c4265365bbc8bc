//! Authentication vocabulary: the identity behind a request.

use std::collections::BTreeMap;

use crate::names::dns1123_subdomain;

/// Group of every user that presented a valid credential.
pub const ALL_AUTHENTICATED: &str = "system:authenticated";
/// Group of every request without a credential.
pub const ALL_UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group whose members bypass authorization.
pub const MASTERS: &str = "system:masters";

/// Identity of a requester, as authentication establishes it and authorization, admission and audit use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    pub name: String,
    /// Distinguishes users of the same name over time; empty where the authenticator has none.
    pub uid: String,
    pub groups: Vec<String>,
    /// Attributes that only the authenticator and authorizers interpret.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// Returns the namespace and name of the service account that authenticates under this name.
pub fn service_account_of(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let is_valid = |name: &str| dns1123_subdomain(name).is_empty();
    (is_valid(namespace) && is_valid(name)).then_some((namespace, name))
}

impl UserInfo {
    /// Returns a user that presented a valid credential: its groups and [`ALL_AUTHENTICATED`].
    pub fn authenticated(name: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().collect();
        groups.push(ALL_AUTHENTICATED.to_owned());
        Self { name: name.into(), groups, ..Self::default() }
    }

    /// Returns a member of [`MASTERS`].
    pub fn master(name: impl Into<String>) -> Self {
        Self::authenticated(name, [MASTERS.to_owned()])
    }

    /// Returns the user that a service account authenticates as.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        Self::authenticated(format!("system:serviceaccount:{namespace}:{name}"), groups)
    }

    /// Returns the user of a request without a credential.
    pub fn anonymous() -> Self {
        Self { name: "system:anonymous".into(), groups: vec![ALL_UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// Returns true for a member of `group`.
    pub fn is_in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|member| member == group)
    }

    /// Returns true for a service account of a pod on a node.
    pub fn is_on_node(&self, node: &str) -> bool {
        let nodes = self.extra.get("authentication.kubernetes.io/node-name");
        service_account_of(&self.name).is_some() && nodes.is_some_and(|nodes| nodes == &[node.to_owned()])
    }

    /// Returns true if authorization always allows this user.
    pub fn is_master(&self) -> bool {
        self.is_in_group(MASTERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_account_belongs_to_its_namespace_and_authenticated_groups() {
        let user = UserInfo::service_account("apps", "builder");
        assert_eq!(user.name, "system:serviceaccount:apps:builder");
        assert_eq!(
            user.groups,
            ["system:serviceaccounts", "system:serviceaccounts:apps", "system:authenticated"]
        );
        assert!(!user.is_master());
    }

    #[test]
    fn anonymous_user_is_not_authenticated() {
        assert!(!UserInfo::anonymous().is_in_group(ALL_AUTHENTICATED));
        assert!(UserInfo::master("admin").is_master());
    }
}
