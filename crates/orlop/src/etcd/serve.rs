//! `orlop etcd`: flags, the store behind them, and what is printed when it is ready.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use clap::Args;
use orlop_etcd::{Options, Server};
use orlop_net::{
    ALPN_HTTP, Address, ClientAuth, Listener, PemSource, ServerTls, TlsOptions, UnixSocketOptions,
};
use orlop_store::{Config, Durability, Endpoint, Store};

use crate::{private_key::refuse_if_public, shutdown};

/// Flags of `orlop etcd`, named as kine's where kine has the same.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Address to listen on for etcd clients: host:port or unix:///path.
    #[arg(long, env = "ORLOP_ETCD_LISTEN_ADDRESS", default_value = "127.0.0.1:2379", value_name = "ADDRESS")]
    listen_address: Address,

    #[command(flatten)]
    data: Data,

    /// Member name, as `etcdctl member list` shows it.
    #[arg(long, default_value = "orlop")]
    name: String,

    /// Client URLs to advertise in the member list [default: the listen address].
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    advertise_client_urls: Vec<String>,

    /// Serving certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "server_key_file", help_heading = "TLS for clients")]
    server_cert_file: Option<PathBuf>,

    /// Private key (PEM) of the serving certificate.
    #[arg(long, value_name = "FILE", requires = "server_cert_file", help_heading = "TLS for clients")]
    server_key_file: Option<PathBuf>,

    /// CA (PEM) that client certificates must be issued by. Clients without one are refused.
    #[arg(long, value_name = "FILE", requires = "server_cert_file", help_heading = "TLS for clients")]
    trusted_ca_file: Option<PathBuf>,

    /// Accept clients of other machines without TLS. Everybody who reaches the address can read and write all keys.
    #[arg(long, conflicts_with = "server_cert_file", help_heading = "TLS for clients")]
    allow_plaintext: bool,

    /// Address to serve /health, /metrics and /version on in plain HTTP, besides the client address.
    #[arg(long, value_name = "ADDRESS", help_heading = "Observability")]
    metrics_bind_address: Option<Address>,

    /// Interval of progress notifications to idle watches that asked for them.
    #[arg(long, default_value = "5s", value_parser = orlop_duration::parse_unsigned, value_name = "TIME")]
    watch_progress_notify_interval: Duration,

    /// etcd version to report. Clients decide by it which features to use.
    #[arg(long, default_value = "3.6.11", value_name = "VERSION")]
    emulated_etcd_version: String,

    /// Interval of automatic compaction; 0 leaves compaction to clients, as kube-apiserver does.
    #[arg(long, default_value = "0", value_parser = orlop_duration::parse_unsigned, value_name = "TIME", help_heading = "Limits")]
    compact_interval: Duration,

    /// Revisions that automatic compaction always retains.
    #[arg(long, default_value_t = 1000, value_name = "COUNT", help_heading = "Limits")]
    compact_min_retain: i64,

    /// Database size at which writes are refused (NOSPACE); 0 for no limit.
    #[arg(long, default_value_t = 0, value_name = "BYTES", help_heading = "Limits")]
    quota_backend_bytes: u64,

    /// Limit on operations in one transaction.
    #[arg(long, default_value_t = 128, value_name = "COUNT", help_heading = "Limits")]
    max_txn_ops: usize,

    /// Limit on the size of a write request.
    #[arg(long, default_value_t = 1_572_864, value_name = "BYTES", help_heading = "Limits")]
    max_request_bytes: usize,

    /// Bytes of keys and values that one range returns.
    #[arg(long, default_value_t = 512 << 20, value_name = "BYTES", help_heading = "Limits")]
    max_response_bytes: usize,
}

/// Database options.
#[derive(Clone, Debug, Args)]
pub(super) struct Data {
    /// Database: memory, sqlite:///path (or a path), or postgres://user@host/database.
    #[arg(long, env = "ORLOP_ETCD_ENDPOINT", default_value = "sqlite://orlop.db", value_name = "ENDPOINT")]
    endpoint: String,

    /// Acknowledge writes before they are synced to disk. A power failure may lose the last of them; a crash
    /// of orlop loses none.
    #[arg(long, help_heading = "Database")]
    relaxed_durability: bool,

    /// Number of connections for reads.
    #[arg(long, default_value_t = 4, value_name = "COUNT", help_heading = "Database")]
    datastore_max_open_connections: usize,

    /// CA (PEM) that the database's certificate must be issued by.
    #[arg(long, value_name = "FILE", help_heading = "Database")]
    ca_file: Option<PathBuf>,

    /// Client certificate (PEM) for the database.
    #[arg(long, value_name = "FILE", requires = "key_file", help_heading = "Database")]
    cert_file: Option<PathBuf>,

    /// Private key (PEM) of that client certificate.
    #[arg(long, value_name = "FILE", requires = "cert_file", help_heading = "Database")]
    key_file: Option<PathBuf>,
}

impl Data {
    /// Returns the endpoint, with the TLS files as its parameters.
    pub(super) fn endpoint(&self) -> anyhow::Result<Endpoint> {
        let endpoint = Endpoint::parse(&self.endpoint)?;
        let files =
            [("sslrootcert", &self.ca_file), ("sslcert", &self.cert_file), ("sslkey", &self.key_file)];
        let given: Vec<_> = files.iter().filter_map(|(name, file)| Some((name, file.as_ref()?))).collect();
        let Endpoint::Postgres(mut url) = endpoint else {
            if !given.is_empty() {
                bail!("--ca-file, --cert-file and --key-file are for a PostgreSQL endpoint");
            }
            return Ok(endpoint);
        };
        for (name, file) in given {
            let separator = if url.contains('?') { '&' } else { '?' };
            url.push_str(&format!("{separator}{name}={}", file.display()));
        }
        Ok(Endpoint::Postgres(url))
    }

    /// Returns the store's configuration. History is retained until a client compacts it.
    pub(super) fn config(&self) -> anyhow::Result<Config> {
        let mut config = Config::new(self.endpoint()?);
        config.retention = None;
        config.may_block = orlop_net::is_busy_thread;
        config.readers = self.datastore_max_open_connections.max(1);
        if self.relaxed_durability {
            config.durability = Durability::Relaxed;
        }
        // The etcd front limits a transaction per level: see `--max-txn-ops`.
        config.limits.txn_operations = 1 << 17;
        config.limits.txn_depth = 128;
        Ok(config)
    }

    pub(super) async fn open(&self, quota_bytes: u64) -> anyhow::Result<Store> {
        let mut config = self.config()?;
        config.limits.database_bytes = quota_bytes;
        let shown = config.endpoint.to_string();
        Store::open(config).await.with_context(|| format!("cannot open {shown}"))
    }
}

impl Serve {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let shutdown_requested = shutdown::requested();
        let tls = match (&self.server_cert_file, &self.server_key_file) {
            (Some(certificate), Some(key)) => {
                refuse_if_public(key)?;
                Some(ServerTls::new(TlsOptions {
                    certificate: PemSource::File(certificate.clone()),
                    key: PemSource::File(key.clone()),
                    client_auth: match &self.trusted_ca_file {
                        None => ClientAuth::Disabled,
                        Some(ca) => ClientAuth::Required(PemSource::File(ca.clone())),
                    },
                    alpn: ALPN_HTTP,
                })?)
            }
            _ => None,
        };
        self.check_exposure()?;
        let store = self.data.open(self.quota_backend_bytes).await?;
        let listener = bind(&self.listen_address).await?;
        let url = url(&listener.local_address(), tls.is_some());
        let server = Server::new(store.clone(), self.options(&url)).await?;
        self.print_ready(&url, &store, &server).await?;
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let metrics = match &self.metrics_bind_address {
            None => None,
            Some(address) => {
                let listener = bind(address).await?;
                let (server, mut stopped) = (server.clone(), stopped.clone());
                Some(tokio::spawn(async move {
                    let shutdown = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
                    server.serve_http(listener, shutdown).await;
                }))
            }
        };
        server.serve(listener, tls, shutdown_requested).await;
        stop.send_replace(true);
        if let Some(metrics) = metrics {
            metrics.await?;
        }
        drop(server);
        store.close().await;
        tracing::info!("stopped");
        Ok(())
    }

    /// Refuses an address that other machines reach without TLS. The API has no other access control.
    fn check_exposure(&self) -> anyhow::Result<()> {
        let address = &self.listen_address;
        if address.is_local() {
            return Ok(());
        }
        if self.server_cert_file.is_none() && !self.allow_plaintext {
            bail!(
                "{address} is reachable from other machines, and without TLS everybody there can read and write all keys: \
                 set --server-cert-file and --server-key-file, or --allow-plaintext"
            );
        }
        if self.trusted_ca_file.is_none() {
            tracing::warn!(%address, "clients are not authenticated: set --trusted-ca-file to require certificates");
        }
        Ok(())
    }

    fn options(&self, url: &str) -> Options {
        let urls = &self.advertise_client_urls;
        Options {
            name: self.name.clone(),
            client_urls: if urls.is_empty() { vec![url.to_owned()] } else { urls.clone() },
            version: self.emulated_etcd_version.clone(),
            max_request_bytes: self.max_request_bytes,
            max_response_bytes: self.max_response_bytes,
            max_txn_ops: self.max_txn_ops,
            progress_interval: self.watch_progress_notify_interval,
            compact_interval: (!self.compact_interval.is_zero()).then_some(self.compact_interval),
            compact_min_retain: self.compact_min_retain,
            quota_bytes: self.quota_backend_bytes,
            ..Options::default()
        }
    }

    /// Prints the address, the database and a first command.
    async fn print_ready(&self, url: &str, store: &Store, server: &Server) -> anyhow::Result<()> {
        let mut flags = format!("--endpoints={url}");
        if url.starts_with("https") || url.starts_with("unixs") {
            flags.push_str(" --cacert=CA.crt");
        }
        if self.trusted_ca_file.is_some() {
            flags.push_str(" --cert=CLIENT.crt --key=CLIENT.key");
        }
        println!("etcd v3 API  {url}  (also /health, /metrics, /version)");
        println!("data         {}  revision {}", self.data.endpoint()?, store.revision().await?);
        println!("cluster      {:x}", server.cluster_id());
        println!("try          etcdctl {flags} put greeting hello");
        println!("stop         Ctrl-C");
        Ok(())
    }
}

async fn bind(address: &Address) -> anyhow::Result<Listener> {
    let bound = Listener::bind(address, &UnixSocketOptions::default()).await;
    bound.with_context(|| format!("cannot listen on {address}"))
}

fn url(address: &Address, tls: bool) -> String {
    match (address, tls) {
        (Address::Tcp { .. }, false) => format!("http://{address}"),
        (Address::Tcp { .. }, true) => format!("https://{address}"),
        (Address::Unix(path), false) => format!("unix://{}", path.display()),
        (Address::Unix(path), true) => format!("unixs://{}", path.display()),
    }
}
