//! Watches of a kind.

use futures_util::{StreamExt, stream::BoxStream};
use kube_core::Resource;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Api,
    client::decode,
    watcher::{self, Config, Event},
};

/// Watches a kind: every object, then every change, for ever. Failures are items of the stream, and retried with
/// back-off. An object that cannot be decoded is an error of its own, and stops no other.
pub fn watch_kind<K>(api: &Api<K>, config: Config) -> BoxStream<'static, watcher::Result<Event<K>>>
where
    K: Resource + DeserializeOwned + Send + 'static,
{
    watcher::watch(api.untyped(), config).map(|event| typed(event?)).boxed()
}

fn typed<K: DeserializeOwned>(event: Event<Value>) -> watcher::Result<Event<K>> {
    let read = |value| decode(value).map_err(watcher::Error::WatchFailed);
    Ok(match event {
        Event::Apply(object) => Event::Apply(read(object)?),
        Event::Delete(object) => Event::Delete(read(object)?),
        Event::InitApply(object) => Event::InitApply(read(object)?),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    })
}
