//! The work queue of controllers of CertificateSigningRequests.

use std::{future::Future, sync::Arc};

use futures_util::StreamExt;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use orlop_client::{
    Api, Client, ResourceExt, watch_kind,
    watcher::{self, Event},
};

use crate::{
    runtime::{Action, Context, WorkQueue},
    status::{is_conflict, is_not_found},
};

/// Requests that are reconciled at a time.
const CONCURRENCY: usize = 2;

/// Reconciles requests that are due, by name. One that changed or is gone meanwhile comes back by the watch, if at all.
pub(crate) async fn run<R>(
    context: Context,
    is_due: fn(&CertificateSigningRequest) -> bool,
    reconcile: impl Fn(Client, String) -> R,
) where
    R: Future<Output = orlop_client::Result<()>> + Send + 'static,
{
    let queue = context.work_queue();
    let client = context.client.clone();
    tokio::select! {
        () = watch(&context, &queue, is_due) => {}
        () = queue.run(CONCURRENCY, |name: String| {
            let reconciled = reconcile(client.clone(), name);
            async move {
                match reconciled.await {
                    Err(error) if is_conflict(&error) || is_not_found(&error) => Ok(Action::Done),
                    reconciled => reconciled.map(|()| Action::Done),
                }
            }
        }) => {}
    }
}

async fn watch(
    context: &Context,
    queue: &Arc<WorkQueue<String>>,
    is_due: fn(&CertificateSigningRequest) -> bool,
) {
    let requests = Api::<CertificateSigningRequest>::all(context.client.clone());
    let mut events = watch_kind(&requests, watcher::Config::default());
    while let Some(event) = events.next().await {
        if let Ok(Event::Apply(request) | Event::InitApply(request)) = event
            && is_due(&request)
        {
            queue.add(request.name_any());
        }
    }
}
