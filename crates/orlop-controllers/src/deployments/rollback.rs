//! Rollback by annotation, as clients of extensions/v1beta1 asked for it. Pure.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use orlop_client::ResourceExt;

use super::{
    revisions::{ROLLBACK_TO, is_own_annotation, last, revision},
    sets::{TEMPLATE_HASH, is_same_template},
};

/// Returns the revision that a rollback is asked for.
pub(super) fn requested(deployment: &Deployment) -> Option<i64> {
    deployment.annotations().get(ROLLBACK_TO)?.parse().ok()
}

/// Outcome of a rollback, for an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Rollback {
    /// The template is that of the revision.
    Done(i64),
    /// The reason and message of a warning.
    Refused(&'static str, String),
}

/// Rolls a Deployment back to a revision, and clears the request.
pub(super) fn roll_back(deployment: &mut Deployment, sets: &[Arc<ReplicaSet>], wanted: i64) -> Rollback {
    if let Some(annotations) = deployment.metadata.annotations.as_mut() {
        annotations.remove(ROLLBACK_TO);
    }
    let not_found = |text: &str| Rollback::Refused("DeploymentRollbackRevisionNotFound", text.to_owned());
    let wanted = if wanted == 0 { last(sets) } else { wanted };
    if wanted == 0 {
        return not_found("Unable to find last revision.");
    }
    let Some(set) = sets.iter().find(|set| revision(set) == wanted) else {
        return not_found("Unable to find the revision to rollback to.");
    };
    let name = deployment.name_any();
    let mut template = set.spec.template.clone().unwrap_or_default();
    if is_same_template(&deployment.spec.template, &template) {
        let text = format!("The rollback revision contains the same template as current deployment {name:?}");
        return Rollback::Refused("DeploymentRollbackTemplateUnchanged", text);
    }
    if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
        labels.remove(TEMPLATE_HASH);
    }
    deployment.spec.template = template;
    // The Deployment's other annotations go to that ReplicaSet next: they must be its own.
    let annotations = deployment.metadata.annotations.get_or_insert_default();
    annotations.retain(|key, _| is_own_annotation(key));
    let restored = set.annotations().iter().filter(|(key, _)| !is_own_annotation(key));
    annotations.extend(restored.map(|(key, value)| (key.clone(), value.clone())));
    Rollback::Done(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn template_and_annotations_return() {
        let template = |image: &str| {
            json!({"metadata": {"labels": {"app": "web", TEMPLATE_HASH: "x"}},
                "spec": {"containers": [{"name": "a", "image": image}]}})
        };
        let set = |revision: i64, image: &str| {
            let set = json!({"metadata": {"annotations": {super::super::revisions::REVISION: revision.to_string(),
                "kubernetes.io/change-cause": image}}, "spec": {"selector": {}, "template": template(image)}});
            Arc::new(serde_json::from_value::<ReplicaSet>(set).unwrap())
        };
        let deployment = || {
            serde_json::from_value::<Deployment>(json!({
                "metadata": {"name": "web", "annotations": {ROLLBACK_TO: "0", "kubernetes.io/change-cause": "two"}},
                "spec": {"selector": {}, "template": template("two")}}))
            .unwrap()
        };
        let sets = [set(1, "one"), set(2, "two")];
        let mut changed = deployment();
        assert_eq!(requested(&changed), Some(0));
        assert_eq!(roll_back(&mut changed, &sets, 0), Rollback::Done(1));
        let spec = changed.spec.template.spec.as_ref().unwrap();
        assert_eq!(spec.containers[0].image.as_deref(), Some("one"));
        assert_eq!(changed.annotations().get("kubernetes.io/change-cause").unwrap(), "one");
        assert!(matches!(roll_back(&mut deployment(), &sets, 2), Rollback::Refused(reason, _)
            if reason == "DeploymentRollbackTemplateUnchanged"));
        assert!(matches!(roll_back(&mut deployment(), &sets, 9), Rollback::Refused(reason, _)
            if reason == "DeploymentRollbackRevisionNotFound"));
    }
}
