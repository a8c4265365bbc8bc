//! Revisions of a Deployment, and the annotations of its ReplicaSets. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use orlop_client::ResourceExt;

use super::{
    sets::{DESIRED_REPLICAS, MAX_REPLICAS},
    strategy::{max_surge, replicas},
};

/// Annotation of the revision.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// Annotation of the revisions that a ReplicaSet had before.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// Annotation with the revision to return to. Zero is the one before.
pub(super) const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";
/// Longest history.
const HISTORY_MAX: usize = 2000;

/// Annotations that ReplicaSets and their Deployment do not share.
pub(super) fn is_own_annotation(key: &str) -> bool {
    matches!(key, "kubectl.kubernetes.io/last-applied-configuration")
        || matches!(key, REVISION | REVISION_HISTORY | DESIRED_REPLICAS | MAX_REPLICAS | ROLLBACK_TO)
}

/// Returns the revision of a ReplicaSet, zero without one.
pub(super) fn revision(set: &ReplicaSet) -> i64 {
    set.annotations().get(REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Returns the newest revision.
pub(super) fn newest(sets: &[Arc<ReplicaSet>]) -> i64 {
    sets.iter().map(|set| revision(set)).max().unwrap_or(0)
}

/// Returns the second newest revision, zero without one.
pub(super) fn last(sets: &[Arc<ReplicaSet>]) -> i64 {
    let mut revisions: Vec<i64> = sets.iter().map(|set| revision(set)).collect();
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().unwrap_or(0)
}

/// Gives the new ReplicaSet its revision and the Deployment's annotations. Returns whether that changed anything.
pub(super) fn annotate(deployment: &Deployment, set: &mut ReplicaSet, new_revision: i64) -> bool {
    let annotations = set.metadata.annotations.get_or_insert_default();
    let before = annotations.clone();
    for (key, value) in deployment.annotations() {
        if !is_own_annotation(key) {
            annotations.insert(key.clone(), value.clone());
        }
    }
    let known = annotations.get(REVISION).cloned();
    let old_revision = match known.as_deref() {
        None | Some("") => 0,
        Some(text) => match text.parse() {
            Ok(number) => number,
            // Somebody wrote something else: leave it alone.
            Err(_) => return false,
        },
    };
    if old_revision < new_revision {
        annotations.insert(REVISION.to_owned(), new_revision.to_string());
        if let Some(known) = known {
            append_history(annotations, &known);
        }
    }
    *annotations != before
}

/// Remembers a revision that the ReplicaSet had, at the cost of the oldest if there are too many.
fn append_history(annotations: &mut BTreeMap<String, String>, revision: &str) {
    let history = annotations.get(REVISION_HISTORY).cloned().unwrap_or_default();
    let mut revisions: Vec<&str> = history.split(',').filter(|revision| !revision.is_empty()).collect();
    revisions.push(revision);
    let length = |revisions: &[&str]| revisions.iter().map(|text| text.len() + 1).sum::<usize>();
    let mut start = 0;
    while start + 1 < revisions.len() && length(&revisions[start..]) > HISTORY_MAX + 1 {
        start += 1;
    }
    annotations.insert(REVISION_HISTORY.to_owned(), revisions[start..].join(","));
}

/// Notes the Deployment's size on a ReplicaSet. Returns whether that changed anything.
pub(super) fn annotate_replicas(deployment: &Deployment, set: &mut ReplicaSet) -> bool {
    let wanted = replicas(deployment);
    let most = wanted + max_surge(deployment);
    let annotations = set.metadata.annotations.get_or_insert_default();
    let mut changed = false;
    for (key, value) in [(DESIRED_REPLICAS, wanted), (MAX_REPLICAS, most)] {
        let old = annotations.insert(key.to_owned(), value.to_string());
        changed |= old != Some(value.to_string());
    }
    changed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment() -> Deployment {
        serde_json::from_value(json!({"metadata": {"annotations": {
            "kubernetes.io/change-cause": "why", REVISION: "7",
            "kubectl.kubernetes.io/last-applied-configuration": "{}"}}}))
        .unwrap()
    }

    #[test]
    fn new_set_gets_revision_and_annotations() {
        let mut set = ReplicaSet::default();
        assert!(annotate(&deployment(), &mut set, 3));
        let annotations = set.annotations();
        assert_eq!(annotations.get(REVISION).unwrap(), "3");
        assert_eq!(annotations.get("kubernetes.io/change-cause").unwrap(), "why");
        assert_eq!(annotations.len(), 2);
        assert!(!annotate(&deployment(), &mut set.clone(), 3), "nothing is new");
        assert!(annotate(&deployment(), &mut set, 5), "rolled back to");
        assert_eq!(set.annotations().get(REVISION_HISTORY).unwrap(), "3");
        assert!(annotate(&deployment(), &mut set, 8));
        assert_eq!(set.annotations().get(REVISION_HISTORY).unwrap(), "3,5");
        assert!(!annotate(&deployment(), &mut set, 2), "revisions never go back");
    }

    #[test]
    fn history_is_bounded() {
        let mut annotations = BTreeMap::new();
        for revision in 0..1000 {
            append_history(&mut annotations, &revision.to_string());
        }
        let history = &annotations[REVISION_HISTORY];
        assert!(history.len() <= HISTORY_MAX && history.ends_with(",998,999"), "{}", history.len());
    }
}
