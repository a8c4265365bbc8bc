//! Watches.

use futures_util::{StreamExt, stream::BoxStream};
use kube::{
    Client, Resource,
    core::ApiResource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Config, Event, watcher},
    },
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Api, api::decode, raw::Raw};

type Events<K> = BoxStream<'static, watcher::Result<Event<K>>>;

/// Watches a kind: every object, then every change, for ever. Failures are items of the stream, and retried with
/// back-off. An object that cannot be decoded is an error of its own, and stops no other.
pub fn watch_kind<K>(api: &Api<K>, config: Config) -> Events<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
{
    let (client, resource, namespace) = (api.client().clone(), ApiResource::erase::<K>(&()), api.namespace());
    let events = match K::metadata_api() {
        true => watch_metadata(client, &resource, namespace, config),
        false => watch_objects(client, &resource, namespace, config),
    };
    events.map(|event| typed(event?)).boxed()
}

fn watch_objects(
    client: Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    config: Config,
) -> Events<Value> {
    watch_raw::<false>(client, resource, namespace, config)
}

fn watch_metadata(
    client: Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    config: Config,
) -> Events<Value> {
    watch_raw::<true>(client, resource, namespace, config)
}

fn watch_raw<const METADATA: bool>(
    client: Client,
    resource: &ApiResource,
    namespace: Option<&str>,
    config: Config,
) -> Events<Value> {
    let api = match namespace {
        Some(namespace) => kube::Api::<Raw<METADATA>>::namespaced_with(client, namespace, resource),
        None => kube::Api::all_with(client, resource),
    };
    let events = watcher(api, config).default_backoff();
    events.map(|event| event.map(|event| map(event, |object: Raw<METADATA>| object.value))).boxed()
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

fn map<A, B>(event: Event<A>, map: impl Fn(A) -> B) -> Event<B> {
    match event {
        Event::Apply(object) => Event::Apply(map(object)),
        Event::Delete(object) => Event::Delete(map(object)),
        Event::InitApply(object) => Event::InitApply(map(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}
