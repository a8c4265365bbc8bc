//! Objects that every namespace must have, one of a fixed name in each.

use std::{fmt::Debug, sync::Arc};

use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use orlop_client::{
    Api, ResourceExt,
    core::PartialObjectMeta,
    watch_kind,
    watcher::{self, Event},
};
use serde::de::DeserializeOwned;

use crate::{
    runtime::{Action, Context, WorkQueue},
    status::{is_conflict, is_forbidden, is_not_found},
};

/// Namespaces that are reconciled at a time.
const CONCURRENCY: usize = 4;

/// Calls `ensure` for every active namespace, and again when the object of that name in it changes or is
/// deleted. For ever.
pub(crate) async fn ensure_in_every_namespace<K, F>(
    context: Context,
    object_name: &'static str,
    ensure: impl Fn(orlop_client::Client, String) -> F + Send + Sync,
) where
    K: orlop_client::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
    F: Future<Output = orlop_client::Result<()>> + Send + 'static,
{
    let queue = context.work_queue();
    let client = context.client.clone();
    tokio::select! {
        () = watch::<K>(&context, object_name, &queue) => {}
        () = queue.run(CONCURRENCY, |namespace: String| {
            let ensured = ensure(client.clone(), namespace);
            async move {
                match ensured.await {
                    // A namespace that is terminating or gone needs nothing any more.
                    Err(error) if is_forbidden(&error) || is_not_found(&error) => Ok(Action::Done),
                    // Somebody else has written it: the watch brings it up again.
                    Err(error) if is_conflict(&error) => Ok(Action::Done),
                    ensured => ensured.map(|()| Action::Done),
                }
            }
        }) => {}
    }
}

/// Queues namespaces, for ever. Only metadata is asked for.
async fn watch<K>(context: &Context, object_name: &str, queue: &Arc<WorkQueue<String>>)
where
    K: orlop_client::Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let namespaces = Api::<PartialObjectMeta<Namespace>>::all(context.client.clone());
    let namespaces = watch_kind(&namespaces, watcher::Config::default()).filter_map(|event| {
        std::future::ready(match event {
            Ok(Event::Apply(namespace) | Event::InitApply(namespace))
                if namespace.metadata.deletion_timestamp.is_none() =>
            {
                Some(namespace.name_any())
            }
            Ok(_) => None,
            Err(error) => log_watch_error(&error),
        })
    });
    // Only those of the name: there may be very many others.
    let config = watcher::Config::default().fields(&format!("metadata.name={object_name}"));
    let objects = Api::<PartialObjectMeta<K>>::all(context.client.clone());
    let objects = watch_kind(&objects, config).filter_map(|event| {
        std::future::ready(match event {
            Ok(Event::Apply(object) | Event::Delete(object)) => object.namespace(),
            Ok(_) => None,
            Err(error) => log_watch_error(&error),
        })
    });
    let mut changed = stream::select(namespaces.boxed(), objects.boxed());
    while let Some(namespace) = changed.next().await {
        queue.add(namespace);
    }
}

fn log_watch_error<T>(error: &watcher::Error) -> Option<T> {
    tracing::debug!(%error, "watch failed; retrying with back-off");
    None
}
