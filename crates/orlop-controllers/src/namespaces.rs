//! The end of namespaces: what is in them goes first, pods before all else, and the namespace says what it
//! still waits for.

use std::collections::{BTreeMap, HashSet};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    discovery::verbs,
    runtime::watcher::{self, Event, watcher},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    discovered::{Resource, Resources},
    retry::{Backoff, is_conflict, is_missing},
};

/// The name of the controller.
pub(crate) const NAME: &str = "namespace-controller";

const FINALIZER: &str = "kubernetes";
/// Objects deleted at a time, where a collection cannot be deleted as one.
const PAGE: u32 = 500;

/// Empties namespaces that are to go, for ever.
pub(crate) async fn run(client: Client) {
    let mut events = watcher(Api::<Namespace>::all(client.clone()), watcher::Config::default()).boxed();
    let (mut ending, mut names) = (JoinSet::new(), HashSet::new());
    loop {
        tokio::select! {
            Some(event) = events.next() => if let Ok(Event::Apply(namespace) | Event::InitApply(namespace)) = event
                && namespace.metadata.deletion_timestamp.is_some()
                && names.insert(namespace.name_any())
            {
                ending.spawn(end(client.clone(), namespace.name_any()));
            },
            Some(Ok(name)) = ending.join_next() => drop(names.remove(&name)),
        }
    }
}

/// Empties one namespace and lets it go.
async fn end(client: Client, name: String) -> String {
    let mut backoff = Backoff::default();
    loop {
        match empty(&client, &name).await {
            Ok(left) if left.is_nothing() => match release(&client, &name).await {
                Ok(()) => return name,
                Err(error) if is_missing(&error) => return name,
                Err(error) => tracing::debug!(%error, name, "namespace not released yet"),
            },
            Ok(left) => {
                if let Err(error) = left.tell(&client, &name).await {
                    if is_missing(&error) {
                        return name;
                    }
                    tracing::debug!(%error, name, "namespace status not written");
                }
            }
            Err(error) => tracing::debug!(%error, name, "namespace not emptied yet"),
        }
        backoff.wait().await;
    }
}

/// What a namespace still waits for.
#[derive(Debug, Default)]
struct Left {
    /// By resource, how many objects.
    content: BTreeMap<String, usize>,
    /// By finalizer, how many objects.
    finalizers: BTreeMap<String, usize>,
    failures: Vec<String>,
}

async fn empty(client: &Client, namespace: &str) -> kube::Result<Left> {
    let resources = Resources::discover(client).await?;
    let mut inside: Vec<&Resource> = resources
        .iter()
        .filter(|resource| resource.namespaced && resource.can(verbs::DELETE) && resource.can(verbs::LIST))
        .collect();
    // What runs is stopped before what it may need is taken away.
    inside.sort_by_key(|resource| {
        (resource.api.plural != "pods", resource.api.group.clone(), resource.api.plural.clone())
    });
    let mut left = Left::default();
    for resource in inside {
        if let Err(error) = delete_all(client, resource, namespace).await
            && !is_missing(&error)
        {
            left.failures.push(format!("{}: {error}", resource.api.plural));
        }
        left.count(client, resource, namespace).await?;
        if resource.api.plural == "pods" && left.content.values().any(|count| *count > 0) {
            break;
        }
    }
    Ok(left)
}

async fn delete_all(client: &Client, resource: &Resource, namespace: &str) -> kube::Result<()> {
    let objects = resource.objects(client, Some(namespace));
    let background = DeleteParams::background();
    if resource.can("deletecollection") {
        return objects.delete_collection(&background, &ListParams::default()).await.map(drop);
    }
    for object in objects.list_metadata(&ListParams::default().limit(PAGE)).await? {
        match objects.delete(&object.name_any(), &background).await {
            Err(error) if !is_missing(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

impl Left {
    async fn count(&mut self, client: &Client, resource: &Resource, namespace: &str) -> kube::Result<()> {
        let objects = resource.objects(client, Some(namespace));
        let found = match objects.list_metadata(&ListParams::default().limit(PAGE)).await {
            Err(error) if is_missing(&error) => return Ok(()),
            found => found?,
        };
        if !found.items.is_empty() {
            let name = match resource.api.group.as_str() {
                "" => format!("{}.", resource.api.plural),
                group => format!("{}.{group}", resource.api.plural),
            };
            let more = found.metadata.remaining_item_count.and_then(|more| usize::try_from(more).ok());
            self.content.insert(name, found.items.len() + more.unwrap_or(0));
        }
        for finalizer in found.items.iter().flat_map(ResourceExt::finalizers) {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        Ok(())
    }

    fn is_nothing(&self) -> bool {
        self.content.is_empty() && self.failures.is_empty()
    }

    /// Writes the conditions that say what is left.
    async fn tell(&self, client: &Client, name: &str) -> kube::Result<()> {
        let namespaces = Api::<Namespace>::all(client.clone());
        let now = namespaces.get_status(name).await?;
        let known = now.status.and_then(|status| status.conditions).unwrap_or_default();
        let condition = |kind: &str, holds: bool, reasons: (&str, &str), message: String| -> Value {
            let status = if holds { "True" } else { "False" };
            let same = known.iter().find(|known| known.type_ == kind && known.status == status);
            let since = same.and_then(|known| known.last_transition_time.clone());
            let since = since.map_or_else(|| json!(k8s_now()), |time| json!(time));
            let reason = if holds { reasons.0 } else { reasons.1 };
            json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
        };
        let counted = |counts: &BTreeMap<String, usize>, what: &str| {
            let parts: Vec<String> = counts
                .iter()
                .map(|(name, count)| format!("{name} {what} {count} resource instances"))
                .collect();
            parts.join(", ")
        };
        let content = match self.content.is_empty() {
            true => "All content successfully removed".to_owned(),
            false => format!("Some resources are remaining: {}", counted(&self.content, "has")),
        };
        let finalizers = match self.finalizers.is_empty() {
            true => "All content-preserving finalizers finished".to_owned(),
            false => format!(
                "Some content in the namespace has finalizers remaining: {}",
                counted(&self.finalizers, "in")
            ),
        };
        let failure = match self.failures.is_empty() {
            true => "All content successfully deleted, may be waiting on finalization".to_owned(),
            false => format!(
                "Failed to delete all resource types, {} remaining: {}",
                self.failures.len(),
                self.failures.join(", ")
            ),
        };
        let conditions = json!([
            condition(
                "NamespaceDeletionDiscoveryFailure",
                false,
                ("DiscoveryFailed", "ResourcesDiscovered"),
                "All resources successfully discovered".into()
            ),
            condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                false,
                ("GroupVersionParsingFailed", "ParsedGroupVersions"),
                "All legacy kube types successfully parsed".into()
            ),
            condition(
                "NamespaceDeletionContentFailure",
                !self.failures.is_empty(),
                ("ContentDeletionFailed", "ContentDeleted"),
                failure
            ),
            condition(
                "NamespaceContentRemaining",
                !self.content.is_empty(),
                ("SomeResourcesRemain", "ContentRemoved"),
                content
            ),
            condition(
                "NamespaceFinalizersRemaining",
                !self.finalizers.is_empty(),
                ("SomeFinalizersRemain", "ContentHasNoFinalizers"),
                finalizers
            ),
        ]);
        let patch = Patch::Merge(json!({"status": {"conditions": conditions}}));
        namespaces.patch_status(name, &PatchParams::default(), &patch).await.map(drop)
    }
}

fn k8s_now() -> k8s_openapi::apimachinery::pkg::apis::meta::v1::Time {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::now())
}

/// Takes the namespace's own finalizer away; with it goes the namespace.
async fn release(client: &Client, name: &str) -> kube::Result<()> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let mut backoff = Backoff::default();
    loop {
        let mut namespace = namespaces.get(name).await?;
        if let Some(spec) = &mut namespace.spec
            && let Some(finalizers) = &mut spec.finalizers
        {
            finalizers.retain(|finalizer| finalizer != FINALIZER);
        }
        match namespaces.replace_subresource("finalize", name, &PostParams::default(), &namespace).await {
            Ok(_) => return Ok(()),
            Err(error) if is_conflict(&error) => backoff.wait().await,
            Err(error) => return Err(error),
        }
    }
}
