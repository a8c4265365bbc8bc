//! Start and end of a server.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hyper_util::service::TowerToHyperService;
use orlop_net::{
    AcceptOptions, ClientAuth, HttpOptions, Listener, PemSource, ServerTls, TlsError, TlsOptions,
};
use slate::{
    Engine,
    store::{MemoryStore, Store},
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    task::JoinHandle,
};

use crate::{
    config::{Config, StoreKind},
    connection::Limits,
    context::{Context, SharedContext},
    cursors::Cursors,
    http, maintenance,
    metrics::Metrics,
    mongo, native,
    net::{self, Front},
    scram::Credentials,
};

/// Reason why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store cannot be opened.
    #[error("store {0}: {1}")]
    Store(&'static str, slate::Error),
    /// The server was built without RocksDB.
    #[error("store rocks: this slate-server was built without the feature `rocks`")]
    NoRocks,
    /// An address cannot be bound.
    #[error("listen on {0}: {1}")]
    Listen(SocketAddr, std::io::Error),
    /// A file cannot be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    /// The certificate or key is unusable.
    #[error("TLS: {0}")]
    Tls(#[from] TlsError),
    /// The token file is empty.
    #[error("{0}: the token is empty")]
    EmptyToken(PathBuf),
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    context: SharedContext,
    address: SocketAddr,
    http_address: Option<SocketAddr>,
    mongo_address: Option<SocketAddr>,
    ready_file: PathBuf,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Server {
    /// Opens the store, binds every address, starts serving, and writes the ready file.
    pub async fn start(config: Config) -> Result<Self, Error> {
        // A server that was killed leaves its file, which would call this one ready before it is.
        remove_ready_file(&config.ready_file)?;
        let engine = open_engine(&config).await?;
        let token = read_token(&config)?;
        let tls = server_tls(&config)?;
        let context = Arc::new(Context {
            engine,
            cursors: Cursors::default(),
            metrics: Metrics::new(),
            credentials: token.as_deref().map(Credentials::new),
            token,
            store: config.store.name(),
            query_timeout: config.query_timeout(),
            limits: Arc::new(Limits::new(
                config.idle_timeout(),
                config.transfer_timeout(),
                config.max_frame_bytes,
                config.max_intake_bytes,
            )),
        });
        let (stop, stopped) = watch::channel(false);
        let front = Front {
            context: Arc::clone(&context),
            tls,
            connections_max: config.max_connections,
            limit: Arc::new(Semaphore::new(config.max_connections)),
            stop: stopped.clone(),
        };

        let (listener, address) = bind(config.addr).await?;
        let mut tasks = Vec::new();
        let mut mongo_address = None;
        if let Some(address) = config.mongo_addr {
            let (listener, address) = bind(address).await?;
            mongo_address = Some(address);
            tasks.push(tokio::spawn(net::serve(listener, front.clone(), mongo::serve)));
        }
        tasks.push(tokio::spawn(net::serve(listener, front, native::serve)));
        let mut http_address = None;
        if let Some(address) = config.http_addr {
            let (listener, address) = bind(address).await?;
            http_address = Some(address);
            tasks.push(tokio::spawn(serve_http(listener, Arc::clone(&context), stopped.clone())));
        }
        let interval = Duration::from_secs(config.ttl_interval_s.max(1));
        tasks.push(tokio::spawn(maintenance::run(Arc::clone(&context), interval, stopped)));
        if !config.ready_file.as_os_str().is_empty() {
            std::fs::write(&config.ready_file, format!("{address}\n"))
                .map_err(|error| Error::File(config.ready_file.clone(), error))?;
        }
        for open in [Some(address), mongo_address].into_iter().flatten() {
            if context.token.is_none() && !open.ip().is_loopback() {
                tracing::warn!(address = %open, "whoever reaches this address may read and write: give a --token-file");
            }
        }
        tracing::info!(%address, store = config.store.name(), "slate-server is ready");
        Ok(Self { context, address, http_address, mongo_address, ready_file: config.ready_file, stop, tasks })
    }

    /// Returns the bound address of Slate's protocol.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the bound address of HTTP.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http_address
    }

    /// Returns the bound address of the MongoDB protocol.
    pub fn mongo_address(&self) -> Option<SocketAddr> {
        self.mongo_address
    }

    /// Returns the number of open connections.
    pub fn open_connections(&self) -> i64 {
        self.context.metrics.connections.get()
    }

    /// Returns the engine, for tests.
    pub fn engine(&self) -> &Engine {
        &self.context.engine
    }

    /// Stops accepting, lets requests finish, and flushes the store.
    pub async fn stop(self) {
        if let Err(error) = remove_ready_file(&self.ready_file) {
            tracing::warn!(%error, "ready file could not be removed");
        }
        self.stop.send_replace(true);
        for task in self.tasks {
            // A task ends by itself; a panic in it has been reported.
            let _ = task.await;
        }
        let context = self.context;
        let flushed = tokio::task::spawn_blocking(move || context.engine.flush()).await;
        match flushed {
            Ok(Ok(())) => tracing::info!("slate-server has stopped"),
            Ok(Err(error)) => tracing::error!(%error, "flush failed"),
            Err(error) => tracing::error!(%error, "flush failed"),
        }
    }
}

/// Removes the ready file, if there is one.
fn remove_ready_file(path: &Path) -> Result<(), Error> {
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::File(path.to_owned(), error))
        }
        _ => Ok(()),
    }
}

async fn bind(address: SocketAddr) -> Result<(Listener, SocketAddr), Error> {
    let failed = |error| Error::Listen(address, error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener.into(), bound))
}

async fn serve_http(listener: Listener, context: SharedContext, stop: watch::Receiver<bool>) {
    let router = http::router(context);
    let stop = net::stopped(stop);
    orlop_net::accept(listener, AcceptOptions::default(), stop, move |connection, watcher| {
        let service = TowerToHyperService::new(router.clone());
        async move {
            orlop_net::http::serve_connection(connection.stream, &HttpOptions::default(), service, watcher)
                .await;
        }
    })
    .await;
}

async fn open_engine(config: &Config) -> Result<Engine, Error> {
    let kind = config.store;
    let failed = move |error| Error::Store(kind.name(), error);
    let store: Arc<dyn Store> = match kind {
        StoreKind::Memory => Arc::new(MemoryStore::default()),
        StoreKind::Rocks => open_rocks(config).await?,
    };
    Engine::open(store).map_err(failed)
}

#[cfg(feature = "rocks")]
async fn open_rocks(config: &Config) -> Result<Arc<dyn Store>, Error> {
    use slate::store::{RocksOptions, RocksStore};
    let path = config.data_dir.clone();
    let options = RocksOptions { resident_bytes: config.resident_bytes, ..RocksOptions::default() };
    // Recovery reads the whole log, and then what is held in memory, so it may take a while.
    let opened = tokio::task::spawn_blocking(move || RocksStore::open(&path, &options)).await;
    let store = opened.unwrap_or_else(|error| Err(slate::Error::Store(error.to_string())));
    Ok(Arc::new(store.map_err(|error| Error::Store("rocks", error))?))
}

#[cfg(not(feature = "rocks"))]
async fn open_rocks(_config: &Config) -> Result<Arc<dyn Store>, Error> {
    Err(Error::NoRocks)
}

fn read_token(config: &Config) -> Result<Option<String>, Error> {
    let Some(path) = &config.token_file else { return Ok(None) };
    let token = std::fs::read_to_string(path).map_err(|error| Error::File(path.clone(), error))?;
    let token = token.trim().to_owned();
    if token.is_empty() { Err(Error::EmptyToken(path.clone())) } else { Ok(Some(token)) }
}

fn server_tls(config: &Config) -> Result<Option<ServerTls>, Error> {
    let (Some(certificate), Some(key)) = (&config.tls_cert, &config.tls_key) else { return Ok(None) };
    let options = TlsOptions {
        certificate: PemSource::File(certificate.clone()),
        key: PemSource::File(key.clone()),
        client_auth: ClientAuth::Disabled,
        alpn: &[],
    };
    Ok(Some(ServerTls::new(options)?))
}
