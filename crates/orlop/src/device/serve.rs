//! `orlop device serve`.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Args;
use orlop_device::{
    Config, Server,
    server::{Token, WritePolicy},
};
use orlop_net::{ALPN_HTTP2, Address, ClientAuth, PemSource, TlsOptions};
use orlop_store::Endpoint;

use crate::{private_key::refuse_if_public, shutdown};

/// Serve the device API.
///
/// Agents register devices and their conditions; other programs on the node read and watch them. Every client
/// may read. Writes need a permitted user or group (unix socket), a client certificate or a token (TCP).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  orlop device serve                                              # in memory, on the default socket
  orlop device serve --bind-address unix:///tmp/device.sock --storage-endpoint sqlite:///tmp/device.db
  orlop device serve --allow-gid 44 --socket-mode 0660 --socket-owner 0:44
  orlop device serve --bind-address unix:///tmp/device.sock --bind-address :50052 \\
      --tls-cert-file tls.crt --tls-private-key-file tls.key --client-ca-file clients.crt")]
pub(crate) struct Serve {
    /// Address to listen on: unix:///PATH or HOST:PORT; give it twice for both.
    #[arg(long, default_value = super::DEFAULT_SERVER, env = "ORLOP_DEVICE_BIND_ADDRESS", value_name = "ADDRESS", value_delimiter = ',')]
    bind_address: Vec<Address>,

    /// Storage: memory, or sqlite:///PATH to survive restarts.
    #[arg(long, default_value = "memory", env = "ORLOP_DEVICE_STORAGE_ENDPOINT", value_name = "ENDPOINT")]
    storage_endpoint: String,

    /// Permission bits of the unix socket, in octal.
    #[arg(long, default_value = "0666", value_name = "MODE", value_parser = octal)]
    socket_mode: u32,

    /// User and group of the unix socket, as numbers: UID:GID.
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    socket_owner: Option<(u32, u32)>,

    /// Users that may write over the unix socket [default: root and the server's own user, unless groups are
    /// given].
    #[arg(long, value_name = "UID", value_delimiter = ',')]
    allow_uid: Vec<u32>,

    /// Groups that may write over the unix socket, by the process's primary group.
    #[arg(long, value_name = "GID", value_delimiter = ',')]
    allow_gid: Vec<u32>,

    /// Permit every process that can open the unix socket to write.
    #[arg(long)]
    allow_all_local: bool,

    /// File with bearer tokens, one per line, that permit writes over TCP.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Serving certificate for TCP (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    tls_cert_file: Option<PathBuf>,

    /// Private key of the serving certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_private_key_file: Option<PathBuf>,

    /// CAs (PEM) whose client certificates permit writes over TCP.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    client_ca_file: Option<PathBuf>,

    /// Address of health, reflection and channelz; "none" disables them.
    #[arg(long, default_value = "127.0.0.1:50051", value_name = "ADDRESS")]
    health_probe_bind_address: String,

    /// Address of /metrics and /version over HTTP; "none" disables them.
    #[arg(long, default_value = "127.0.0.1:9090", value_name = "ADDRESS")]
    metrics_bind_address: String,

    /// Time that calls get to finish at shutdown.
    #[arg(long, default_value = "25s", value_parser = orlop_duration::parse_unsigned, value_name = "DURATION")]
    shutdown_grace_period: Duration,

    /// Interval of storage health checks.
    #[arg(long, default_value = "10s", value_parser = orlop_duration::parse_unsigned, value_name = "DURATION")]
    service_monitor_period: Duration,

    /// Interval of bookmarks for watches that ask for them.
    #[arg(long, default_value = "60s", value_parser = orlop_duration::parse_unsigned, value_name = "DURATION")]
    bookmark_period: Duration,

    /// Retention of history, by which watches resume and lists are read at a resourceVersion. In memory at most
    /// about 2 MiB of it is retained, but always the last second.
    #[arg(long, default_value = "5m", value_parser = orlop_duration::parse_unsigned, value_name = "DURATION")]
    history: Duration,
}

fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text.trim_start_matches("0o"), 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err(format!("{text:?} is not an octal mode such as 0660")),
    }
}

fn owner(text: &str) -> Result<(u32, u32), String> {
    let parsed = text.split_once(':').and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)));
    parsed.ok_or_else(|| format!("{text:?} is not UID:GID, as in 0:44"))
}

fn side_address(text: &str) -> anyhow::Result<Option<Address>> {
    if matches!(text, "none" | "" | "0") {
        return Ok(None);
    }
    Ok(Some(text.parse()?))
}

impl Serve {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let (began, shutdown_requested) = (Instant::now(), shutdown::requested());
        let config = self.config()?;
        let screen = self.screen(&config);
        let server = Server::start(config).await?;
        println!("{screen}");
        tracing::info!(milliseconds = began.elapsed().as_millis() as u64, "ready");
        shutdown_requested.await;
        server.stop().await;
        Ok(())
    }

    fn config(&self) -> anyhow::Result<Config> {
        let (mut socket, mut tcp) = (None, None);
        for address in &self.bind_address {
            let twice = match address {
                Address::Unix(path) => socket.replace(path.clone()).is_some(),
                Address::Tcp { .. } => tcp.replace(address.clone()).is_some(),
            };
            if twice {
                bail!("--bind-address: at most one unix socket and one TCP address");
            }
        }
        let tls = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => {
                refuse_if_public(key)?;
                Some(TlsOptions {
                    certificate: PemSource::File(certificate.clone()),
                    key: PemSource::File(key.clone()),
                    client_auth: match &self.client_ca_file {
                        None => ClientAuth::Disabled,
                        Some(ca) => ClientAuth::Optional(PemSource::File(ca.clone())),
                    },
                    alpn: ALPN_HTTP2,
                })
            }
            _ => None,
        };
        Ok(Config {
            storage: Endpoint::parse(&self.storage_endpoint)?,
            socket,
            socket_mode: self.socket_mode,
            socket_owner: (self.socket_owner.map(|o| o.0), self.socket_owner.map(|o| o.1)),
            tcp,
            tls,
            policy: self.policy()?,
            admin: side_address(&self.health_probe_bind_address)?,
            metrics: side_address(&self.metrics_bind_address)?,
            monitor_period: self.service_monitor_period,
            bookmark_period: self.bookmark_period,
            grace: self.shutdown_grace_period,
            retention: self.history,
            ..Config::default()
        })
    }

    fn policy(&self) -> anyhow::Result<WritePolicy> {
        let mut uids = self.allow_uid.clone();
        if uids.is_empty() && self.allow_gid.is_empty() {
            uids = vec![0];
            uids.extend(own_uid().filter(|uid| *uid != 0));
        }
        let tokens = match &self.token_file {
            None => Vec::new(),
            Some(path) => {
                refuse_if_public(path)?;
                let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
                let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
                let tokens: Vec<_> = lines.map(|line| Token(line.to_owned())).collect();
                if tokens.is_empty() {
                    bail!("{} holds no token", path.display());
                }
                tokens
            }
        };
        Ok(WritePolicy { uids, gids: self.allow_gid.clone(), any_process: self.allow_all_local, tokens })
    }

    /// Returns addresses, storage and first commands.
    fn screen(&self, config: &Config) -> String {
        let mut lines = vec![format!("orlop device {} serves:", env!("CARGO_PKG_VERSION"))];
        let kinds: Vec<_> =
            config.kinds.iter().map(|kind| format!("{} ({})", kind.plural, kind.service)).collect();
        let mut add = |name: &str, text: String| lines.push(format!("  {name:<9}{text}"));
        add("kinds", kinds.join(", "));
        for address in &self.bind_address {
            let writers = match address {
                Address::Unix(_) if config.policy.any_process => "everyone writes".to_owned(),
                Address::Unix(_) => format!(
                    "mode {:04o}; uids {:?} and gids {:?} write, everyone reads",
                    config.socket_mode, config.policy.uids, config.policy.gids
                ),
                Address::Tcp { .. } => "a client certificate or a token writes, everyone reads".to_owned(),
            };
            add("API", format!("{address}  ({writers})"));
        }
        let kept = match &config.storage {
            Endpoint::Memory => {
                "  (lost with this process; use --storage-endpoint sqlite:///PATH to persist it)"
            }
            _ => "",
        };
        add("storage", format!("{}{kept}", config.storage));
        if let Some(address) = &config.admin {
            add("health", format!("{address}  (grpc.health.v1, reflection, channelz)"));
        }
        if let Some(address) = &config.metrics {
            add("metrics", format!("http://{address}/metrics  (and /version)"));
        }
        if let Some(address) = self.bind_address.first() {
            lines.push("Try, in other terminals:".to_owned());
            lines.push(format!("  orlop device agent --fake 4 --server {address}"));
            lines.push(format!("  orlop device watch --server {address}"));
        }
        lines.join("\n")
    }
}

/// Returns the user of this process: the owner of its directory in /proc.
fn own_uid() -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").ok().map(|metadata| metadata.uid())
}
