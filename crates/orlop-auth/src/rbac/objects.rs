//! Roles and bindings as authorization reads them.

use orlop_api::{go_text::push_quoted, object_meta, user::UserInfo};
use serde_json::Value;

/// Prefix of the user names of service accounts.
pub(crate) const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// A role that a binding grants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoleRef {
    /// `Role`, `ClusterRole`, or something else that grants nothing.
    pub kind: Box<str>,
    /// Name of the role.
    pub name: Box<str>,
}

impl RoleRef {
    /// Reads the roleRef of a binding.
    pub fn of(binding: &Value) -> Self {
        let text = |field: &str| binding.pointer(field).and_then(Value::as_str).unwrap_or_default().into();
        Self { kind: text("/roleRef/kind"), name: text("/roleRef/name") }
    }
}

/// A subject of a binding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A user by name.
    User(Box<str>),
    /// All members of a group.
    Group(Box<str>),
    /// A service account.
    ServiceAccount {
        /// Its namespace.
        namespace: Box<str>,
        /// Its name.
        name: Box<str>,
    },
}

impl Subject {
    /// Reads a subject; `None` if it applies to nobody. A service account without a namespace is in the binding's.
    fn of(subject: &Value, binding_namespace: &str) -> Option<Self> {
        let text = |field: &str| subject.get(field).and_then(Value::as_str).unwrap_or_default();
        let name = text("name").into();
        match text("kind") {
            "User" => Some(Self::User(name)),
            "Group" => Some(Self::Group(name)),
            "ServiceAccount" => {
                let namespace = Some(text("namespace")).filter(|namespace| !namespace.is_empty());
                let namespace = namespace.unwrap_or(binding_namespace);
                (!namespace.is_empty()).then(|| Self::ServiceAccount { namespace: namespace.into(), name })
            }
            _ => None,
        }
    }

    /// Returns true if the subject is a user or a group of theirs.
    pub fn applies_to(&self, user: &UserInfo) -> bool {
        match self {
            Self::User(name) => user.name == **name,
            Self::Group(name) => user.is_in_group(name),
            Self::ServiceAccount { namespace, name } => {
                let rest = user.name.strip_prefix(SERVICE_ACCOUNT);
                rest.and_then(|rest| rest.strip_prefix(&**namespace))
                    .and_then(|rest| rest.strip_prefix(':'))
                    .is_some_and(|rest| rest == &**name)
            }
        }
    }

    fn describe(&self, text: &mut String) {
        match self {
            Self::User(name) => {
                text.push_str("User ");
                push_quoted(text, &[name]);
            }
            Self::Group(name) => {
                text.push_str("Group ");
                push_quoted(text, &[name]);
            }
            Self::ServiceAccount { namespace, name } => {
                text.push_str("ServiceAccount ");
                push_quoted(text, &[name, "/", namespace]);
            }
        }
    }
}

/// A binding of a role to subjects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Namespace; empty for a ClusterRoleBinding.
    pub namespace: Box<str>,
    /// Name.
    pub name: Box<str>,
    /// The role that is granted.
    pub role: RoleRef,
    /// Those who are granted it.
    pub subjects: Box<[Subject]>,
}

impl Binding {
    /// Reads a RoleBinding or ClusterRoleBinding.
    pub fn of(binding: &Value) -> Self {
        let metadata = object_meta::of(binding);
        let namespace = object_meta::text(metadata, "namespace");
        let subjects = binding.get("subjects").and_then(Value::as_array).into_iter().flatten();
        Self {
            namespace: namespace.into(),
            name: object_meta::text(metadata, "name").into(),
            role: RoleRef::of(binding),
            subjects: subjects.filter_map(|subject| Subject::of(subject, namespace)).collect(),
        }
    }

    /// Describes the binding and the first subject that applies to a user, as in reasons of decisions.
    pub fn describe(&self, user: &UserInfo, text: &mut String) {
        match &*self.namespace {
            "" => {
                text.push_str("ClusterRoleBinding ");
                push_quoted(text, &[&self.name]);
            }
            namespace => {
                text.push_str("RoleBinding ");
                push_quoted(text, &[&self.name, "/", namespace]);
            }
        }
        text.push_str(" of ");
        text.push_str(&self.role.kind);
        text.push(' ');
        push_quoted(text, &[&self.role.name]);
        text.push_str(" to ");
        if let Some(subject) = self.subjects.iter().find(|subject| subject.applies_to(user)) {
            subject.describe(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn subjects_apply_to_users_groups_and_service_accounts() {
        let binding = Binding::of(&json!({
            "metadata": {"name": "b", "namespace": "n"}, "roleRef": {"kind": "Role", "name": "r"},
            "subjects": [
                {"kind": "Group", "name": "dev"}, {"kind": "User", "name": "ann"},
                {"kind": "ServiceAccount", "name": "bot"}, {"kind": "ServiceAccount", "name": "x", "namespace": "m"},
                {"kind": "Robot", "name": "y"}],
        }));
        assert_eq!(binding.subjects.len(), 4);
        let applies = |user: &UserInfo| binding.subjects.iter().any(|subject| subject.applies_to(user));
        assert!(applies(&UserInfo::authenticated("ann", [])));
        assert!(applies(&UserInfo::authenticated("bob", ["dev".to_owned()])));
        assert!(applies(&UserInfo::service_account("n", "bot")));
        assert!(applies(&UserInfo::service_account("m", "x")));
        assert!(!applies(&UserInfo::service_account("m", "bot")));
        assert!(!applies(&UserInfo::authenticated("y", [])));
        let mut text = String::new();
        binding.describe(&UserInfo::service_account("n", "bot"), &mut text);
        assert_eq!(text, r#"RoleBinding "b/n" of Role "r" to ServiceAccount "bot/n""#);
    }
}
