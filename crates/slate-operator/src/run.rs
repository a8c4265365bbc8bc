//! The controllers.

use std::{future::Future, sync::Arc};

use futures_util::StreamExt as _;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{PersistentVolumeClaim, Service},
};
use kube::{
    Api, Client, ResourceExt as _,
    runtime::{Controller, reflector::ObjectRef, watcher},
};

use crate::{
    api::{Collection, Server},
    collection,
    context::{Context, Error, Options},
    leader::Election,
    server,
};

/// Runs the operator until `stop` ends or its lease is lost.
pub async fn run(
    client: Client,
    options: Options,
    stop: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let election = options.lease_namespace.as_ref().map(|namespace| Election::new(client.clone(), namespace));
    tokio::pin!(stop);
    if let Some(election) = &election {
        tokio::select! {
            () = election.acquire() => tracing::info!("leading"),
            () = &mut stop => return Ok(()),
        }
    }
    let lost = async {
        match &election {
            Some(election) => election.renew_until_lost().await,
            None => std::future::pending().await,
        }
    };
    let context = Arc::new(Context::new(client, options));
    tokio::select! {
        () = servers(Arc::clone(&context)) => {}
        () = collections(context) => {}
        error = lost => return Err(error),
        () = stop => {}
    }
    if let Some(election) = &election {
        election.release().await;
    }
    Ok(())
}

async fn servers(context: Arc<Context>) {
    let client = &context.client;
    Controller::new(Api::<Server>::all(client.clone()), watcher::Config::default())
        .owns(Api::<Deployment>::all(client.clone()), watcher::Config::default())
        .owns(Api::<Service>::all(client.clone()), watcher::Config::default())
        .owns(Api::<PersistentVolumeClaim>::all(client.clone()), watcher::Config::default())
        .run(server::reconcile, server::error_policy, Arc::clone(&context))
        .for_each(|result| async move {
            if let Err(error) = result {
                tracing::debug!(%error, "server");
            }
        })
        .await;
}

async fn collections(context: Arc<Context>) {
    let client = &context.client;
    let controller = Controller::new(Api::<Collection>::all(client.clone()), watcher::Config::default());
    let store = controller.store();
    controller
        // A Server that becomes ready, or restarts, concerns its Collections.
        .watches(Api::<Server>::all(client.clone()), watcher::Config::default(), move |server: Server| {
            let of_server = move |collection: &Arc<Collection>| {
                collection.namespace() == server.namespace() && collection.spec.server == server.name_any()
            };
            store
                .state()
                .into_iter()
                .filter(of_server)
                .map(|collection| ObjectRef::from_obj(&*collection))
                .collect::<Vec<_>>()
        })
        .run(collection::reconcile, collection::error_policy, Arc::clone(&context))
        .for_each(|result| async move {
            if let Err(error) = result {
                tracing::debug!(%error, "collection");
            }
        })
        .await;
}
