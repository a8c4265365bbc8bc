//! Command line and environment.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

/// Slate, a document database.
#[derive(Debug, Clone, clap::Parser)]
#[command(name = "slate-server", version)]
pub struct Config {
    /// Address of Slate's protocol
    #[arg(long, env = "SLATE_ADDR", default_value = "0.0.0.0:9600")]
    pub addr: SocketAddr,

    /// Storage: `memory` (lost at exit) or `rocks` (durable, in the data directory)
    #[arg(long, env = "SLATE_STORE", default_value = "memory")]
    pub store: StoreKind,

    /// Data directory of the rocks store
    #[arg(long, env = "SLATE_DATA_DIR", default_value = "/data")]
    pub data_dir: PathBuf,

    /// Bytes of keys and documents that the rocks store holds in memory as well, to read them there
    #[arg(long, env = "SLATE_RESIDENT_BYTES", default_value_t = 128 << 20)]
    pub resident_bytes: u64,

    /// File written once connections are accepted, and removed at exit; empty for none
    #[arg(long, env = "SLATE_READY_FILE", default_value = "/tmp/ready", value_parser = parse_path)]
    pub ready_file: PathBuf,

    /// Address of the MongoDB wire protocol; off unless set
    #[arg(long, env = "SLATE_MONGO_ADDR")]
    pub mongo_addr: Option<SocketAddr>,

    /// Address of metrics and health over HTTP; off unless set
    #[arg(long, env = "SLATE_HTTP_ADDR")]
    pub http_addr: Option<SocketAddr>,

    /// File with the token that clients must present (MongoDB: the password of user `slate`)
    #[arg(long, env = "SLATE_TOKEN_FILE")]
    pub token_file: Option<PathBuf>,

    /// Certificate chain in PEM; turns TLS on
    #[arg(long, env = "SLATE_TLS_CERT", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,

    /// Private key in PEM
    #[arg(long, env = "SLATE_TLS_KEY", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,

    /// Most connections at a time
    #[arg(long, env = "SLATE_MAX_CONNECTIONS", default_value_t = 1024)]
    pub max_connections: usize,

    /// Largest request in bytes
    #[arg(long, env = "SLATE_MAX_FRAME_BYTES", default_value_t = slate_client::protocol::FRAME_LEN_MAX)]
    pub max_frame_bytes: usize,

    /// Seconds after which an idle connection is closed
    #[arg(long, env = "SLATE_IDLE_TIMEOUT_S", default_value_t = 600)]
    pub idle_timeout_s: u64,

    /// Seconds that a message has to arrive or to be taken, beside one for each 64 KiB of it
    #[arg(long, env = "SLATE_TRANSFER_TIMEOUT_S", default_value_t = 30)]
    pub transfer_timeout_s: u64,

    /// Bytes of large requests that may be in memory at a time
    #[arg(long, env = "SLATE_MAX_INTAKE_BYTES", default_value_t = 256 << 20)]
    pub max_intake_bytes: usize,

    /// Seconds that a query or update may take
    #[arg(long, env = "SLATE_QUERY_TIMEOUT_S", default_value_t = 60)]
    pub query_timeout_s: u64,

    /// Seconds between two runs of TTL expiry
    #[arg(long, env = "SLATE_TTL_INTERVAL_S", default_value_t = 30)]
    pub ttl_interval_s: u64,
}

/// Storage backend. An unknown name is refused at start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreKind {
    /// In memory.
    Memory,
    /// RocksDB.
    Rocks,
}

impl StoreKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Rocks => "rocks",
        }
    }
}

impl Config {
    /// Returns the settings of a test: memory, free loopback ports, no ready file.
    pub fn for_test() -> Self {
        let mut config = <Self as clap::Parser>::parse_from(["slate-server"]);
        config.addr = SocketAddr::from(([127, 0, 0, 1], 0));
        config.ready_file = PathBuf::new();
        config
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_secs(self.idle_timeout_s.max(1))
    }

    pub(crate) fn transfer_timeout(&self) -> Duration {
        Duration::from_secs(self.transfer_timeout_s.max(1))
    }

    pub(crate) fn query_timeout(&self) -> Duration {
        Duration::from_secs(self.query_timeout_s.max(1))
    }
}

/// Parses a path that may be empty.
fn parse_path(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(PathBuf::from(text))
}
