//! Reconciliation of a Collection: the collection and its indexes on the server.

mod indexes;

use std::{sync::Arc, time::Duration};

use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{
        controller::Action,
        finalizer::{Event, finalizer},
    },
};
use serde_json::json;
use slate_client::{
    Client,
    protocol::{ErrorCode, IndexInfo},
};

use self::indexes::Progress;
use crate::{
    api::{API_VERSION, Collection, CollectionStatus, DeletionPolicy, Phase, Server},
    conditions,
    context::{Context, Error, MANAGER, with_timeout},
};

/// Finalizer that drops the data.
const FINALIZER: &str = "slate.io/collection";
/// Requeue interval while the server is not ready. Its status change comes sooner.
const NOT_READY_REQUEUE: Duration = Duration::from_secs(15);
/// Requeue interval during an index build.
const BUILDING_REQUEUE: Duration = Duration::from_secs(2);
/// Requeue interval of a collection that is in sync.
const SYNCED_REQUEUE: Duration = Duration::from_secs(60);

pub(crate) async fn reconcile(collection: Arc<Collection>, context: Arc<Context>) -> Result<Action, Error> {
    let namespace = collection.namespace().unwrap_or_default();
    let collections: Api<Collection> = Api::namespaced(context.client.clone(), &namespace);
    let servers: Api<Server> = Api::namespaced(context.client.clone(), &namespace);
    let reconciled = finalizer(&collections, FINALIZER, Arc::clone(&collection), |event| async {
        match event {
            Event::Apply(collection) => apply(&collection, &context, &collections, &servers).await,
            Event::Cleanup(collection) => cleanup(&collection, &context, &collections, &servers).await,
        }
    });
    let action =
        with_timeout(async { reconciled.await.map_err(|error| Error::Finalizer(error.to_string())) }).await?;
    context.reset_backoff(&*collection);
    Ok(action)
}

pub(crate) fn error_policy(collection: Arc<Collection>, error: &Error, context: Arc<Context>) -> Action {
    tracing::warn!(collection = collection.name_any(), %error, "reconciliation failed");
    context.back_off(&*collection)
}

async fn apply(
    collection: &Collection,
    context: &Context,
    collections: &Api<Collection>,
    servers: &Api<Server>,
) -> Result<Action, Error> {
    let not_ready = async |reason: &str, message: String| {
        let mut status = collection.status.clone().unwrap_or_default();
        set_ready(collection, &mut status, false, reason, &message);
        write_status(collection, context, collections, status, reason, &message).await?;
        Ok(Action::requeue(NOT_READY_REQUEUE))
    };
    let name = &collection.spec.server;
    let Some(server) = servers.get_opt(name).await? else {
        return not_ready("ServerNotFound", format!("there is no Server {name:?} in this namespace")).await;
    };
    if server.phase() != Some(Phase::Ready) {
        return not_ready("ServerNotReady", format!("Server {name:?} is not ready")).await;
    }
    let client = match context.connect(&server).await {
        Ok(client) => client,
        Err(error) => {
            not_ready("ServerUnreachable", error.to_string()).await?;
            return Err(error);
        }
    };
    // Read from the server: the pod may have restarted since the Server's status was written.
    let (boot_id, _) = match client.hello().await {
        Ok(hello) => hello,
        Err(error) => {
            not_ready("ServerUnreachable", error.to_string()).await?;
            return Err(error.into());
        }
    };
    let progress = match sync(collection, context, &client).await {
        Ok(progress) => progress,
        Err(error) => {
            let reason = if error.code() == Some(ErrorCode::Invalid) { "InvalidSpec" } else { "ServerError" };
            not_ready(reason, error.to_string()).await?;
            return Err(error.into());
        }
    };
    let mut status = CollectionStatus {
        server_generation: server.status.as_ref().and_then(|status| status.ready_generation),
        observed_generation: collection.metadata.generation,
        boot_id: Some(boot_id),
        documents: i64::try_from(progress.documents).ok(),
        indexes: Some(progress.summary()),
        conditions: collection.status.clone().unwrap_or_default().conditions,
    };
    let (reason, message, requeue) = if progress.is_ready() {
        context.clear_rebuild(collection);
        ("UpToDate", "the collection and its indexes exist".to_owned(), SYNCED_REQUEUE)
    } else if progress.failed().next().is_some() {
        ("IndexBuildFailed", progress.failures(), context.until_rebuild(collection))
    } else {
        ("BuildingIndexes", format!("indexes ready: {}", progress.summary()), BUILDING_REQUEUE)
    };
    set_ready(collection, &mut status, progress.is_ready(), reason, &message);
    write_status(collection, context, collections, status, reason, &message).await?;
    Ok(Action::requeue(requeue))
}

/// Creates the collection, or creates missing and drops extra indexes.
///
/// Level-triggered: compares with the state of the server, not with a recorded generation, so a new pod, an edited
/// spec and an index dropped by hand are the same case. Only failed builds back off.
async fn sync(
    collection: &Collection,
    context: &Context,
    client: &Client,
) -> Result<Progress, slate_client::Error> {
    let name = collection.name_any();
    let desired = indexes::definitions(&collection.spec.indexes);
    match client.create_collection(&name, desired.clone()).await {
        Ok(()) => {}
        Err(error) if error.code() == Some(ErrorCode::AlreadyExists) => {
            let present = client.indexes(&name).await?;
            let difference = indexes::difference(&desired, &present);
            let is_desired = |index: &&IndexInfo| !difference.extra.contains(&index.definition.name);
            let failed: Vec<_> =
                present.iter().filter(is_desired).filter(|index| index.error.is_some()).collect();
            let retry = !failed.is_empty() && context.should_rebuild(collection);
            let rebuilt = failed.into_iter().filter(|_| retry).map(|index| index.definition.clone());
            for index in &difference.extra {
                client.drop_index(&name, index).await?;
            }
            for index in difference.missing.iter().cloned().chain(rebuilt) {
                client.create_index(&name, index, true).await?;
            }
        }
        Err(error) => return Err(error),
    }
    let documents = client.count(&name, &Default::default()).await?;
    Ok(Progress { documents, indexes: client.indexes(&name).await? })
}

async fn cleanup(
    collection: &Collection,
    context: &Context,
    collections: &Api<Collection>,
    servers: &Api<Server>,
) -> Result<Action, Error> {
    if collection.spec.deletion_policy == DeletionPolicy::Retain {
        return Ok(Action::await_change());
    }
    // With the Server, or its namespace, the data goes anyway.
    let server = servers.get_opt(&collection.spec.server).await?;
    let Some(server) = server.filter(|server| server.metadata.deletion_timestamp.is_none()) else {
        return Ok(Action::await_change());
    };
    match drop_data(collection, context, &server).await {
        Ok(()) => {}
        Err(Error::Server(error)) if error.code() == Some(ErrorCode::NotFound) => {}
        Err(error) => {
            // The status names the reason why the finalizer stays.
            let (reason, message) = ("DropFailed", format!("the data cannot be dropped: {error}"));
            let mut status = collection.status.clone().unwrap_or_default();
            set_ready(collection, &mut status, false, reason, &message);
            write_status(collection, context, collections, status, reason, &message).await?;
            return Err(error);
        }
    }
    context.event(collection, false, "Dropped", "the collection's data was dropped").await;
    Ok(Action::await_change())
}

async fn drop_data(collection: &Collection, context: &Context, server: &Server) -> Result<(), Error> {
    let client = context.connect(server).await?;
    Ok(client.drop_collection(&collection.name_any()).await?)
}

fn set_ready(
    collection: &Collection,
    status: &mut CollectionStatus,
    ready: bool,
    reason: &str,
    message: &str,
) {
    let generation = collection.metadata.generation;
    conditions::set(&mut status.conditions, "Ready", ready, reason, message, generation);
}

async fn write_status(
    collection: &Collection,
    context: &Context,
    collections: &Api<Collection>,
    status: CollectionStatus,
    reason: &str,
    message: &str,
) -> Result<(), Error> {
    let before = collection.status.clone().unwrap_or_default();
    if json!(before) == json!(status) {
        return Ok(());
    }
    let patch = json!({ "apiVersion": API_VERSION, "kind": "Collection", "status": status });
    collections
        .patch_status(&collection.name_any(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(&patch))
        .await?;
    let reason_of =
        |status: &CollectionStatus| status.conditions.first().map(|condition| condition.reason.clone());
    if reason_of(&before) != reason_of(&status) {
        let warning = !matches!(reason, "UpToDate" | "BuildingIndexes" | "ServerNotReady");
        context.event(collection, warning, reason, message).await;
    }
    Ok(())
}
