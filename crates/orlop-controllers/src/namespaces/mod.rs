//! Namespace deletion: deletes the content of a terminating namespace, pods first, reports in its conditions
//! what remains, and removes its finalizer once it is empty.

mod conditions;

use std::{collections::BTreeMap, sync::Arc};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use orlop_client::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    core::{PartialObjectMeta, discovery::verbs},
    watch_kind,
    watcher::{self, Event},
};

use crate::{
    discovery::{Resource, Resources},
    runtime::{Action, Context, WorkQueue},
    status::{is_conflict, is_not_found},
};

/// Name of the controller.
pub(crate) const NAME: &str = "namespace-controller";

const FINALIZER: &str = "kubernetes";
/// Namespaces that are emptied at a time, as many as kube-controller-manager does.
const CONCURRENCY: usize = 10;
/// Objects read at a time.
const PAGE: u32 = 500;

/// Empties terminating namespaces, for ever.
pub(crate) async fn run(context: Context) {
    let queue = context.work_queue();
    let client = context.client.clone();
    tokio::select! {
        () = watch(&client, &queue) => {}
        () = queue.run(CONCURRENCY, |name: String| reconcile(client.clone(), name)) => {}
    }
}

/// Queues terminating namespaces, for ever.
async fn watch(client: &Client, queue: &Arc<WorkQueue<String>>) {
    let namespaces = Api::<PartialObjectMeta<Namespace>>::all(client.clone());
    let mut events = watch_kind(&namespaces, watcher::Config::default());
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(namespace) | Event::InitApply(namespace))
                if namespace.metadata.deletion_timestamp.is_some() =>
            {
                queue.add(namespace.name_any());
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "watch failed; retrying with back-off"),
        }
    }
}

/// Deletes what a terminating namespace holds; removes the finalizer once nothing remains.
async fn reconcile(client: Client, name: String) -> orlop_client::Result<Action> {
    let namespaces = Api::<Namespace>::all(client.clone());
    let Some(namespace) = namespaces.get_opt(&name).await? else { return Ok(Action::Done) };
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default();
    let is_ours = finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    if namespace.metadata.deletion_timestamp.is_none() || !is_ours {
        return Ok(Action::Done);
    }
    let remaining = delete_content(&client, &name).await?;
    let ended = if remaining.is_empty() {
        remove_finalizer(&namespaces, namespace).await.map(|()| Action::Done)
    } else {
        // Content goes when its own finalizers are done. No watch covers all of it, so requeue it.
        conditions::report(&namespaces, &namespace, &remaining).await.map(|()| Action::Requeue)
    };
    match ended {
        Err(error) if is_not_found(&error) => Ok(Action::Done),
        Err(error) if is_conflict(&error) => Ok(Action::Requeue),
        ended => ended,
    }
}

/// Content that a namespace still has.
#[derive(Debug, Default)]
struct Remaining {
    /// Number of objects by resource.
    content: BTreeMap<String, usize>,
    /// Number of objects by finalizer.
    finalizers: BTreeMap<String, usize>,
    /// Group versions that could not be discovered.
    undiscovered: Vec<String>,
    /// Errors of resources that could not be deleted.
    failures: Vec<String>,
}

impl Remaining {
    fn is_empty(&self) -> bool {
        self.content.is_empty() && self.failures.is_empty() && self.undiscovered.is_empty()
    }

    async fn count(
        &mut self,
        client: &Client,
        resource: &Resource,
        namespace: &str,
    ) -> orlop_client::Result<()> {
        let objects = resource.objects(client, Some(namespace));
        let found = match objects.list(&ListParams::default().limit(PAGE)).await {
            Err(error) if is_not_found(&error) => return Ok(()),
            found => found?,
        };
        if !found.items.is_empty() {
            let name = format!("{}.{}", resource.api.plural, resource.api.group);
            let more = found.metadata.remaining_item_count.and_then(|more| usize::try_from(more).ok());
            self.content.insert(name, found.items.len() + more.unwrap_or(0));
        }
        for finalizer in found.items.iter().flat_map(ResourceExt::finalizers) {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        Ok(())
    }
}

async fn delete_content(client: &Client, namespace: &str) -> orlop_client::Result<Remaining> {
    let resources = Resources::discover(client).await?;
    let mut namespaced: Vec<&Resource> = resources
        .iter()
        .filter(|resource| resource.namespaced && resource.can(verbs::DELETE) && resource.can(verbs::LIST))
        .collect();
    // Pods stop before what they may need is deleted.
    namespaced.sort_by_key(|resource| {
        (resource.api.plural != "pods", resource.api.group.clone(), resource.api.plural.clone())
    });
    let mut remaining = Remaining { undiscovered: resources.stale().to_vec(), ..Remaining::default() };
    for resource in namespaced {
        let deleted = match delete_all(client, resource, namespace).await {
            Ok(()) => remaining.count(client, resource, namespace).await,
            failed => failed,
        };
        // One resource that cannot be deleted, as of an API server that is down, does not keep the others.
        match deleted {
            Err(error) if !is_not_found(&error) => {
                remaining.failures.push(format!("{}: {error}", resource.api.plural));
            }
            _ => {}
        }
        if resource.api.plural == "pods" && !(remaining.content.is_empty() && remaining.failures.is_empty()) {
            break;
        }
    }
    Ok(remaining)
}

async fn delete_all(client: &Client, resource: &Resource, namespace: &str) -> orlop_client::Result<()> {
    let objects = resource.objects(client, Some(namespace));
    let background = DeleteParams::background();
    if resource.can("deletecollection") {
        return objects.delete_collection(&background, &ListParams::default()).await.map(drop);
    }
    for object in objects.list(&ListParams::default().limit(PAGE)).await? {
        match objects.delete(&object.name_any(), &background).await {
            Err(error) if !is_not_found(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Removes the namespace's own finalizer; without finalizers the server deletes the namespace.
async fn remove_finalizer(namespaces: &Api<Namespace>, mut namespace: Namespace) -> orlop_client::Result<()> {
    let name = namespace.name_any();
    if let Some(finalizers) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    namespaces.replace_subresource("finalize", &name, &PostParams::default(), &namespace).await.map(drop)
}
