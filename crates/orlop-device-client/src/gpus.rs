//! GPUs as the source of a cache.

use tonic::{Status, Streaming};

use crate::{
    Connection, Key, Source, WatchEvent,
    api::{
        Gpu, ListGpusRequest, ListOptions, ObjectMeta, WatchGpusRequest, WatchGpusResponse,
        gpu_service_client::GpuServiceClient,
    },
};

/// Largest list, the same as the server's.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// The GPUs of a server: all, or those in a namespace or with certain labels.
#[derive(Clone, Debug)]
pub struct Gpus {
    client: GpuServiceClient<Connection>,
    namespace: Option<String>,
    label_selector: Option<String>,
}

impl Gpus {
    /// Selects all GPUs.
    pub fn new(connection: Connection) -> Self {
        let client = GpuServiceClient::new(connection).max_decoding_message_size(MESSAGE_BYTES_MAX);
        Self { client, namespace: None, label_selector: None }
    }

    /// Selects those in a namespace.
    #[must_use]
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Selects those that match a label selector.
    #[must_use]
    pub fn selector(self, selector: impl Into<String>) -> Self {
        Self { label_selector: Some(selector.into()), ..self }
    }

    /// Returns the gRPC client.
    pub fn client(&self) -> GpuServiceClient<Connection> {
        self.client.clone()
    }
}

impl Source for Gpus {
    type Object = Gpu;
    type Watch = Streaming<WatchGpusResponse>;

    async fn list(&self) -> Result<(Vec<Gpu>, String), Status> {
        let opts = ListOptions { label_selector: self.label_selector.clone(), ..ListOptions::default() };
        let request = ListGpusRequest { namespace: self.namespace.clone(), opts: Some(opts) };
        let list = self.client().list_gpus(request).await?.into_inner().gpu_list.unwrap_or_default();
        let version = list.list_meta.and_then(|meta| meta.resource_version).unwrap_or_default();
        Ok((list.items, version))
    }

    async fn watch(&self, after: &str) -> Result<Self::Watch, Status> {
        let opts = ListOptions {
            label_selector: self.label_selector.clone(),
            resource_version: Some(after.to_owned()),
            allow_watch_bookmarks: Some(true),
            ..ListOptions::default()
        };
        let request = WatchGpusRequest { namespace: self.namespace.clone(), opts: Some(opts) };
        Ok(self.client().watch_gpus(request).await?.into_inner())
    }

    async fn next(watch: &mut Self::Watch) -> Result<Option<WatchEvent<Gpu>>, Status> {
        let Some(event) = watch.message().await? else { return Ok(None) };
        let object = event.object.unwrap_or_default();
        Ok(Some(match event.r#type.as_str() {
            "ADDED" | "MODIFIED" => WatchEvent::Applied(object),
            "DELETED" => WatchEvent::Deleted(object),
            "BOOKMARK" => WatchEvent::Bookmark(Self::version(&object).to_owned()),
            other => return Err(Status::internal(format!("unknown event type {other:?}"))),
        }))
    }

    fn key(object: &Gpu) -> Key {
        let meta = object.object_meta.as_ref();
        let text = |part: fn(&ObjectMeta) -> &str| meta.map(part).unwrap_or_default().to_owned();
        (text(ObjectMeta::namespace), text(ObjectMeta::name))
    }

    fn version(object: &Gpu) -> &str {
        object.object_meta.as_ref().map_or("", ObjectMeta::resource_version)
    }
}
