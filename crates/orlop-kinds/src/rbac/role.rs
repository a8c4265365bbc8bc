//! Role, and the strategy it shares with ClusterRole.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels,
    names::NameRule,
};
use serde_json::Value;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{list, present},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    name_rule: NameRule::PathSegment,
    flags: StrategyFlags { allow_create_on_update: true, ..StrategyFlags::BUILTIN },
    strategy: &RoleStrategy { namespaced: true },
    ..BuiltinKind::new("rbac.authorization.k8s.io", "roles")
};

/// Strategy of Role and ClusterRole.
pub(crate) struct RoleStrategy {
    pub(crate) namespaced: bool,
}

impl Strategy for RoleStrategy {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validation::validate_items(object, "rules", &FieldPath::nil(), |item, path| {
            validate_rule(item, self.namespaced, path)
        });
        if let Some(aggregation) = present(object, "/aggregationRule").filter(|_| !self.namespaced) {
            let path = FieldPath::root("aggregationRule");
            if list(aggregation, "/clusterRoleSelectors").is_empty() {
                let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
                errors.push(FieldError::required(&path.child("clusterRoleSelectors"), detail));
            }
            errors.extend(validation::validate_items(
                aggregation,
                "clusterRoleSelectors",
                &path,
                labels::validate_label_selector,
            ));
        }
        errors
    }
}

fn validate_rule(rule: &Value, namespaced: bool, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let given = |field: &str| list(rule, field);
    if given("/verbs").is_empty() {
        errors.push(FieldError::required(&path.child("verbs"), "").declaratively());
    }
    let urls = given("/nonResourceURLs");
    if !urls.is_empty() {
        let path = path.child("nonResourceURLs");
        if namespaced {
            let detail = "namespaced rules cannot apply to non-resource URLs";
            errors.push(FieldError::invalid(&path, urls.to_vec(), detail));
        }
        if ["/apiGroups", "/resources", "/resourceNames"].iter().any(|field| !given(field).is_empty()) {
            let detail = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(&path, urls.to_vec(), detail));
        }
        return errors;
    }
    if given("/apiGroups").is_empty() {
        let detail = "resource rules must supply at least one api group";
        errors.push(FieldError::required(&path.child("apiGroups"), detail));
    }
    if given("/resources").is_empty() {
        let detail = "resource rules must supply at least one resource";
        errors.push(FieldError::required(&path.child("resources"), detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn rules_require_resources_or_urls() {
        let validation_errors = |namespaced: bool, rule: Value| {
            messages(RoleStrategy { namespaced }.validate(&json!({"rules": [rule]})))
        };
        let good = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        assert!(validation_errors(true, good).is_empty());
        assert_eq!(
            validation_errors(true, json!({})),
            [
                "rules[0].verbs: Required value",
                "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "rules[0].resources: Required value: resource rules must supply at least one resource",
            ]
        );
        let urls = json!({"verbs": ["get"], "nonResourceURLs": ["/a"], "resources": ["x"]});
        assert_eq!(
            validation_errors(true, urls.clone()),
            [
                r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: namespaced rules cannot apply to non-resource URLs"#,
                r#"rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource URLs"#,
            ]
        );
        assert_eq!(validation_errors(false, urls).len(), 1);
        let aggregating = json!({"aggregationRule": {}});
        assert_eq!(
            messages(RoleStrategy { namespaced: false }.validate(&aggregating)),
            [
                "aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil"
            ]
        );
    }
}
