//! ServiceAccount: the identity of pods.

use serde_json::{Value, json};

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{map, text},
    defaulting,
    printer::NAME_AND_AGE,
    strategy::{RequestContext, Strategy},
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, ..StrategyFlags::BUILTIN },
    columns: &NAME_AND_AGE,
    strategy: &ServiceAccount,
    ..BuiltinKind::new("", "serviceaccounts")
};

const MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";

pub(crate) struct ServiceAccount;

impl Strategy for ServiceAccount {
    fn prepare_for_create(&self, object: &mut Value, _context: &RequestContext<'_>) {
        retain_names(object);
    }

    fn prepare_for_update(&self, object: &mut Value, _old: &Value, _context: &RequestContext<'_>) {
        retain_names(object);
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        if !map(object, "/metadata/annotations").contains_key(MOUNTABLE) {
            return Vec::new();
        }
        vec![format!(
            "metadata.annotations[{MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
        )]
    }
}

/// Reduces references to secrets to their names.
fn retain_names(object: &mut Value) {
    defaulting::items_mut(object, "secrets")
        .for_each(|secret| *secret = json!({"name": text(secret, "/name")}));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::tests::row;
    use crate::strategy::tests::context;

    #[test]
    fn secret_references_keep_only_names() {
        let mut account = json!({"metadata": {"name": "a"}, "secrets": [{"name": "s", "kind": "Secret"}]});
        ServiceAccount.prepare_for_create(&mut account, &context());
        assert_eq!(account["secrets"], json!([{"name": "s"}]));
        assert_eq!(row(&NAME_AND_AGE, &account), ["a", "<unknown>"]);
        assert!(ServiceAccount.warnings_on_create(&account).is_empty());
        let enforcing = json!({"metadata": {"annotations": {MOUNTABLE: "true"}}});
        assert_eq!(ServiceAccount.warnings_on_create(&enforcing).len(), 1);
    }
}
