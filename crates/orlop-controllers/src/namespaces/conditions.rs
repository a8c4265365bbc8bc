//! Conditions of a terminating namespace, worded as kube-controller-manager words them.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{Namespace, NamespaceCondition},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};
use orlop_client::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::Remaining;

/// Writes the conditions, unless they say so already.
pub(super) async fn report(
    namespaces: &Api<Namespace>,
    namespace: &Namespace,
    remaining: &Remaining,
) -> orlop_client::Result<()> {
    let current =
        namespace.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let conditions = conditions(remaining, current);
    if conditions == current {
        return Ok(());
    }
    let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
    namespaces.patch_status(&namespace.name_any(), &PatchParams::default(), &patch).await.map(drop)
}

/// Returns the conditions. One whose status stays the same keeps its transition time.
fn conditions(remaining: &Remaining, current: &[NamespaceCondition]) -> Vec<NamespaceCondition> {
    let condition = |type_: &str, holds: bool, reason: &str, message: String| {
        let status = if holds { "True" } else { "False" };
        let same = current.iter().find(|known| known.type_ == type_ && known.status == status);
        let since = same.and_then(|known| known.last_transition_time.clone());
        NamespaceCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(since.unwrap_or_else(|| Time(Timestamp::now()))),
        }
    };
    let content = match remaining.content.is_empty() {
        true => ("ContentRemoved", "All content successfully removed".to_owned()),
        false => (
            "SomeResourcesRemain",
            format!("Some resources are remaining: {}", counts(&remaining.content, "has")),
        ),
    };
    let finalizers = match remaining.finalizers.is_empty() {
        true => ("ContentHasNoFinalizers", "All content-preserving finalizers finished".to_owned()),
        false => (
            "SomeFinalizersRemain",
            format!(
                "Some content in the namespace has finalizers remaining: {}",
                counts(&remaining.finalizers, "in")
            ),
        ),
    };
    let discovery = match remaining.undiscovered.len() {
        0 => ("ResourcesDiscovered", "All resources successfully discovered".to_owned()),
        count => {
            let stale = |version: &String| format!("{version}: stale GroupVersion discovery: {version}");
            let all: Vec<String> = remaining.undiscovered.iter().map(stale).collect();
            let message = format!(
                "Discovery failed for some groups, {count} failing: unable to retrieve the complete list of server \
                 APIs: {}",
                all.join(", ")
            );
            ("DiscoveryFailed", message)
        }
    };
    let failures = match remaining.failures.len() {
        0 => {
            ("ContentDeleted", "All content successfully deleted, may be waiting on finalization".to_owned())
        }
        count => (
            "ContentDeletionFailed",
            format!(
                "Failed to delete all resource types, {count} remaining: {}",
                remaining.failures.join(", ")
            ),
        ),
    };
    vec![
        condition(
            "NamespaceDeletionDiscoveryFailure",
            !remaining.undiscovered.is_empty(),
            discovery.0,
            discovery.1,
        ),
        condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed".to_owned(),
        ),
        condition("NamespaceDeletionContentFailure", !remaining.failures.is_empty(), failures.0, failures.1),
        condition("NamespaceContentRemaining", !remaining.content.is_empty(), content.0, content.1),
        condition(
            "NamespaceFinalizersRemaining",
            !remaining.finalizers.is_empty(),
            finalizers.0,
            finalizers.1,
        ),
    ]
}

fn counts(counts: &BTreeMap<String, usize>, verb: &str) -> String {
    let parts: Vec<String> =
        counts.iter().map(|(name, count)| format!("{name} {verb} {count} resource instances")).collect();
    parts.join(", ")
}
