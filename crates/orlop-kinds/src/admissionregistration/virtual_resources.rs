//! Reviews, which are never stored. Webhooks and policies do not see them: one that failed could lock everybody out.

use orlop_api::{field_error::FieldPath, group_version::GroupResource};
use serde_json::Value;

use crate::accessors::{list, texts};

/// Groups and resources of the reviews.
pub const VIRTUAL_RESOURCES: [(&str, &str); 6] = [
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
];

/// Returns warnings about rules of a webhook configuration that name a review. A wildcard is not meant for them.
pub(super) fn warnings(configuration: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, webhook) in list(configuration, "/webhooks").iter().enumerate() {
        let rules = FieldPath::root("webhooks").index(index).child("rules");
        for (index, rule) in list(webhook, "/rules").iter().enumerate() {
            for named in named_by(rule) {
                let path = rules.index(index);
                warnings.push(format!(
                    "{path}: {named} is excluded from admission webhooks; this rule will have no effect"
                ));
            }
        }
    }
    warnings
}

fn named_by(rule: &Value) -> Vec<GroupResource> {
    let (groups, resources) = (texts(rule, "/apiGroups"), texts(rule, "/resources"));
    if groups.contains(&"*") || resources.contains(&"*") {
        return Vec::new();
    }
    let mut named = Vec::new();
    for group in groups {
        for resource in &resources {
            let found = GroupResource::new(group, *resource);
            if VIRTUAL_RESOURCES.contains(&(group, resource)) && !named.contains(&found) {
                named.push(found);
            }
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rules_that_name_reviews_are_warned_about() {
        let rule = |groups: &[&str], resources: &[&str]| json!({"apiGroups": groups, "resources": resources});
        let authentication = "authentication.k8s.io";
        let object = json!({"webhooks": [{"rules": [
            rule(&["*"], &["tokenreviews"]),
            rule(&["", authentication], &["pods", "tokenreviews", "tokenreviews"]),
        ]}]});
        assert_eq!(
            warnings(&object),
            [
                "webhooks[0].rules[1]: tokenreviews.authentication.k8s.io is excluded from admission webhooks; this rule \
              will have no effect"
            ]
        );
    }
}
