//! A server for a test, in memory or on disk, and clients for it.

#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod python;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use orlop_device::{Config, Server, server::WritePolicy};
use orlop_device_client::{
    Connect, Connection,
    api::{gpu_service_client::GpuServiceClient, *},
};
use orlop_store::Endpoint;
use tonic::{Code, Status, Streaming};

/// Storage of a test's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    Memory,
    Disk,
}

/// A server with a folder of its own.
pub(crate) struct Fixture {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) server: Server,
    pub(crate) connection: Connection,
    pub(crate) client: GpuServiceClient<Connection>,
}

impl Fixture {
    pub(crate) async fn start(storage: Storage) -> Self {
        Self::start_with(storage, |_| {}).await
    }

    pub(crate) async fn start_with(storage: Storage, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config {
            storage: match storage {
                Storage::Memory => Endpoint::Memory,
                Storage::Disk => Endpoint::Sqlite(folder.path().join("state.db")),
            },
            socket: Some(folder.path().join("device.sock")),
            policy: WritePolicy { any_process: true, ..WritePolicy::default() },
            bookmark_period: Duration::from_millis(100),
            monitor_period: Duration::from_millis(200),
            grace: Duration::from_secs(5),
            ..Config::default()
        };
        change(&mut config);
        let server = Server::start(config).await.unwrap();
        let connection = open(&folder.path().join("device.sock"));
        let client = GpuServiceClient::new(connection.clone());
        Self { folder, server, connection, client }
    }

    /// A client with a connection of its own.
    pub(crate) fn connect(socket: &Path) -> GpuServiceClient<Connection> {
        GpuServiceClient::new(open(socket))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("device.sock")
    }
}

fn open(socket: &Path) -> Connection {
    Connect::to(format!("unix://{}", socket.display())).open().unwrap()
}

/// Runs a test on both kinds of storage.
#[macro_export]
macro_rules! on_both_storages {
    ($($(#[$attribute:meta])* async fn $name:ident($fixture:ident: $type:ty) $body:block)*) => {
        $(
            $(#[$attribute])*
            mod $name {
                use super::*;

                async fn check($fixture: $type) $body

                #[tokio::test]
                async fn in_memory() {
                    check($crate::support::Fixture::start($crate::support::Storage::Memory).await).await;
                }

                #[tokio::test]
                async fn on_disk() {
                    check($crate::support::Fixture::start($crate::support::Storage::Disk).await).await;
                }
            }
        )*
    };
}

pub(crate) fn gpu(name: &str) -> Gpu {
    Gpu {
        object_meta: Some(ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }),
        spec: Some(GpuSpec { uuid: "GPU-1234-abcd".to_owned() }),
        ..Gpu::default()
    }
}

pub(crate) fn labelled(name: &str, labels: &[(&str, &str)]) -> Gpu {
    let mut gpu = gpu(name);
    gpu.object_meta.as_mut().unwrap().labels =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    gpu
}

pub(crate) fn condition(kind: &str, status: &str) -> Condition {
    Condition { r#type: kind.to_owned(), status: status.to_owned(), ..Condition::default() }
}

/// The metadata of an object that a server sent.
pub(crate) fn meta(gpu: &Gpu) -> &ObjectMeta {
    gpu.object_meta.as_ref().expect("a server sends metadata")
}

pub(crate) fn version(gpu: &Gpu) -> String {
    meta(gpu).resource_version().to_owned()
}

/// Calls that tests make all the time.
#[allow(async_fn_in_trait, reason = "for tests of this crate only")]
pub(crate) trait Calls {
    async fn create(&mut self, gpu: Gpu) -> Result<Gpu, Status>;
    async fn get(&mut self, name: &str) -> Result<Gpu, Status>;
    async fn update(&mut self, gpu: Gpu) -> Result<Gpu, Status>;
    async fn update_status(&mut self, gpu: Gpu) -> Result<Gpu, Status>;
    async fn patch(
        &mut self,
        name: &str,
        kind: &str,
        data: &str,
        subresources: &[&str],
    ) -> Result<Gpu, Status>;
    async fn delete(&mut self, name: &str) -> Result<(), Status>;
    async fn list(&mut self, opts: ListOptions) -> Result<GpuList, Status>;
    async fn watch(&mut self, opts: ListOptions) -> Result<Streaming<WatchGpusResponse>, Status>;
}

impl Calls for GpuServiceClient<Connection> {
    async fn create(&mut self, gpu: Gpu) -> Result<Gpu, Status> {
        Ok(self.create_gpu(CreateGpuRequest { gpu: Some(gpu), opts: None }).await?.into_inner())
    }

    async fn get(&mut self, name: &str) -> Result<Gpu, Status> {
        let request = GetGpuRequest { name: name.to_owned(), namespace: None, opts: None };
        Ok(self.get_gpu(request).await?.into_inner().gpu.expect("a found object"))
    }

    async fn update(&mut self, gpu: Gpu) -> Result<Gpu, Status> {
        Ok(self.update_gpu(UpdateGpuRequest { gpu: Some(gpu), opts: None }).await?.into_inner())
    }

    async fn update_status(&mut self, gpu: Gpu) -> Result<Gpu, Status> {
        Ok(self.update_gpu_status(UpdateGpuStatusRequest { gpu: Some(gpu), opts: None }).await?.into_inner())
    }

    async fn patch(
        &mut self,
        name: &str,
        kind: &str,
        data: &str,
        subresources: &[&str],
    ) -> Result<Gpu, Status> {
        let request = PatchGpuRequest {
            name: name.to_owned(),
            namespace: None,
            patch_type: kind.to_owned(),
            data: data.as_bytes().to_vec(),
            opts: None,
            subresources: subresources.iter().map(|name| (*name).to_owned()).collect(),
        };
        Ok(self.patch_gpu(request).await?.into_inner())
    }

    async fn delete(&mut self, name: &str) -> Result<(), Status> {
        let request = DeleteGpuRequest { name: name.to_owned(), namespace: None, opts: None };
        self.delete_gpu(request).await.map(drop)
    }

    async fn list(&mut self, opts: ListOptions) -> Result<GpuList, Status> {
        let request = ListGpusRequest { namespace: None, opts: Some(opts) };
        Ok(self.list_gpus(request).await?.into_inner().gpu_list.expect("a list"))
    }

    async fn watch(&mut self, opts: ListOptions) -> Result<Streaming<WatchGpusResponse>, Status> {
        let request = WatchGpusRequest { namespace: None, opts: Some(opts) };
        Ok(self.watch_gpus(request).await?.into_inner())
    }
}

pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";

/// The next event, as its type, the object's name and the object.
pub(crate) async fn event(watch: &mut Streaming<WatchGpusResponse>) -> (String, String, Gpu) {
    let next = tokio::time::timeout(Duration::from_secs(10), watch.message());
    let event = next.await.expect("an event in time").expect("no error").expect("no end");
    let object = event.object.expect("an object");
    (event.r#type, meta(&object).name().to_owned(), object)
}

/// The next event that is no bookmark, as text: "ADDED a".
pub(crate) async fn next_change(watch: &mut Streaming<WatchGpusResponse>) -> String {
    loop {
        let (kind, name, _) = event(watch).await;
        if kind != "BOOKMARK" {
            return format!("{kind} {name}");
        }
    }
}

/// Returns the status that ends a stream.
pub(crate) async fn end(watch: &mut Streaming<WatchGpusResponse>) -> Result<(), Status> {
    let drained = async {
        while watch.message().await?.is_some() {}
        Ok(())
    };
    tokio::time::timeout(Duration::from_secs(10), drained).await.expect("an end in time")
}

/// Asserts that a call failed with a code and a message that has a part.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, part: &str) {
    let status = result.expect_err("refused");
    assert_eq!(status.code(), code, "{status:?}");
    assert!(status.message().contains(part), "{:?} lacks {part:?}", status.message());
}
