//! Service accounts: identities of pods.

use serde_json::{Value, json};

use super::{
    columns::NAME_AND_AGE,
    fill,
    read::{map, text},
};
use crate::{registry::Hooks, table::Columns};

const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

pub(super) struct ServiceAccount;

impl Hooks for ServiceAccount {
    fn prepare_create(&self, object: &mut Value) {
        keep_names(object);
    }

    fn prepare_update(&self, object: &mut Value, _old: &Value) {
        keep_names(object);
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        if !map(object, "/metadata/annotations").contains_key(MOUNTABLE) {
            return Vec::new();
        }
        vec![format!(
            "metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        )]
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&NAME_AND_AGE)
    }
}

/// Secrets are referred to by name; whatever else a reference could say is dropped.
fn keep_names(object: &mut Value) {
    fill::items(object, "secrets").for_each(|secret| *secret = json!({"name": text(secret, "/name")}));
}

#[cfg(test)]
mod tests {
    use super::{super::columns::tests::row, *};

    #[test]
    fn references_keep_their_names_only() {
        let mut account = json!({"metadata": {"name": "a"}, "secrets": [{"name": "s", "kind": "Secret"}]});
        ServiceAccount.prepare_create(&mut account);
        assert_eq!(account["secrets"], json!([{"name": "s"}]));
        assert_eq!(row(&NAME_AND_AGE, &account), ["a", "<unknown>"]);
        assert!(ServiceAccount.warnings(&account).is_empty());
        let enforcing = json!({"metadata": {"annotations": {MOUNTABLE: "true"}}});
        assert_eq!(ServiceAccount.warnings(&enforcing).len(), 1);
    }
}
