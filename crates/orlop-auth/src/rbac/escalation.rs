//! Escalation: who writes a role or a binding must already hold what it grants.

use orlop_api::{go_text::quote, user::UserInfo};

use super::{
    Index, PolicyRule,
    rule::{describe, quoted, uncovered},
};

/// Checks that a user holds rules in a namespace. The error is Kubernetes' message.
pub fn check(index: &Index, user: &UserInfo, namespace: &str, rules: &[PolicyRule]) -> Result<(), String> {
    let (held, error) = index.rules_for(user, namespace);
    let missing = match uncovered(&held, rules) {
        Some(missing) if missing.is_empty() => return Ok(()),
        Some(missing) => describe(&missing),
        None => "too many combinations of verbs, groups, resources and names to compare".to_owned(),
    };
    let resolution = error.map(|error| format!("; resolution errors: [{error}]")).unwrap_or_default();
    Err(format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{missing}{resolution}",
        quote(&user.name),
        quoted(&user.groups),
    ))
}

/// Returns the rules that allow everything. Only who holds them may write an aggregationRule, which can gather
/// anything.
pub fn full_authority() -> Vec<PolicyRule> {
    let all = || vec!["*".into()];
    vec![
        PolicyRule { verbs: all(), api_groups: all(), resources: all(), ..PolicyRule::default() },
        PolicyRule { verbs: all(), non_resource_urls: all(), ..PolicyRule::default() },
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rbac::{Change, IndexWriter, Target};

    #[test]
    fn only_held_permissions_can_be_granted() {
        let mut writer = IndexWriter::default();
        let mut apply = |target, namespace: &str, name: &str, object: serde_json::Value| {
            writer.apply(&Change { target, namespace, name, object: Some(&object) });
        };
        apply(
            Target::Role,
            "n",
            "r",
            json!({"rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}]}),
        );
        apply(
            Target::Binding,
            "n",
            "b",
            json!({"metadata": {"name": "b", "namespace": "n"}, "roleRef": {"kind": "Role", "name": "r"},
                "subjects": [{"kind": "Group", "name": "dev"}]}),
        );
        let index = writer.snapshot();
        let user = UserInfo::authenticated("ann", ["dev".to_owned()]);
        let rules = |verbs: serde_json::Value| {
            PolicyRule::all_of(
                &json!({"rules": [{"verbs": verbs, "apiGroups": [""], "resources": ["pods"]}]}),
            )
        };
        assert_eq!(check(&index, &user, "n", &rules(json!(["list"]))), Ok(()));
        assert_eq!(
            check(&index, &user, "n", &rules(json!(["get", "watch", "delete"]))),
            Err("user \"ann\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC permissions \
                 not currently held:\n{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"watch\" \"delete\"]}"
                .to_owned())
        );
        assert!(check(&index, &user, "m", &rules(json!(["get"]))).is_err());
        assert!(check(&index, &user, "n", &full_authority()).is_err());
        assert_eq!(check(&index, &user, "n", &[]), Ok(()));
    }
}
