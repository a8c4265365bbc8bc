//! Where the data is and how the store behaves.

use std::{fmt, path::PathBuf, time::Duration};

use crate::error::{Error, Result};

/// Where the data is.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A SQLite database in this process's memory, gone with it.
    Memory,
    /// A SQLite database in a file. Its folder must exist.
    Sqlite(PathBuf),
    /// A PostgreSQL database, by connection string.
    Postgres(String),
}

impl Endpoint {
    /// Reads `memory`, `sqlite:///path` (or a bare path) or `postgres://…`.
    pub fn parse(text: &str) -> Result<Self> {
        match text.split_once("://") {
            None if text == "memory" => Ok(Self::Memory),
            Some(("memory", "")) => Ok(Self::Memory),
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            Some(("postgres" | "postgresql", rest)) if !rest.is_empty() => {
                Ok(Self::Postgres(text.to_owned()))
            }
            None if !text.is_empty() => Ok(Self::Sqlite(text.into())),
            _ => Err(Error::Invalid(format!(
                "endpoint {:?} is none of memory, sqlite:///path/to/file.db, postgres://user@host/database",
                without_password(text)
            ))),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
            Self::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}

/// As `Display`: a password must not reach a log through `{:?}` either.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A connection URL with its password, in the authority or as a parameter, taken out.
fn without_password(url: &str) -> String {
    let (base, query) = url.split_once('?').unwrap_or((url, ""));
    let base = match (base.find("://"), base.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme + 3 => {
            let user = base[scheme + 3..at].split(':').next().unwrap_or_default();
            format!("{}{user}{}", &base[..scheme + 3], &base[at..])
        }
        _ => base.to_owned(),
    };
    let kept: Vec<_> =
        query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("password=")).collect();
    if kept.is_empty() { base } else { format!("{base}?{}", kept.join("&")) }
}

/// What an acknowledged write has survived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// It is on the disk: it survives a power cut.
    #[default]
    Full,
    /// It is with the operating system: it survives a crash of this program, but a power cut or a crash of
    /// the machine may take the last moments with it. What remains is consistent.
    Relaxed,
}

/// Bounds on every input. A request over one of them is answered [`Error::TooLarge`].
#[derive(Clone, Debug)]
pub struct Limits {
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Bytes of the index terms of one version.
    pub terms_bytes: usize,
    /// Operations and compares of one transaction, nested ones counted in.
    pub txn_operations: usize,
    /// How deep transactions nest.
    pub txn_depth: usize,
    /// Bytes of all keys and values that one transaction writes.
    pub txn_bytes: usize,
    /// Bytes of all keys and values that one transaction returns: its reads and previous versions. They are held in
    /// memory until the batch is committed.
    pub txn_read_bytes: usize,
    /// Keys that one transaction may change, by ranges too.
    pub txn_changes: usize,
    /// Keys that one read returns at most; a read without a limit over a larger range says `more`.
    pub read_keys: usize,
    /// Transactions waiting for the writer before callers are told to come back later.
    pub queue: usize,
    /// Bytes of the database file past which writes (but not deletes) are refused; 0 for no bound.
    pub database_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            key_bytes: 4 << 10,
            value_bytes: 8 << 20,
            terms_bytes: 256 << 10,
            txn_operations: 1024,
            txn_depth: 8,
            txn_bytes: 64 << 20,
            txn_read_bytes: 64 << 20,
            txn_changes: 200_000,
            read_keys: 10_000_000,
            queue: 8192,
            database_bytes: 0,
        }
    }
}

/// How the store behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the data is.
    pub endpoint: Endpoint,
    /// What an acknowledged write has survived.
    pub durability: Durability,
    /// Bounds on every input.
    pub limits: Limits,
    /// How long history stays readable; `None` keeps it until [`Store::compact`](crate::Store::compact).
    pub retention: Option<Duration>,
    /// Bytes of data past which history is forgotten before its time, all but the last second of it; `None`
    /// for no such bound.
    pub history_bytes: Option<u64>,
    /// Bytes of pages that a SQLite connection that writes keeps at hand; one that reads keeps a quarter.
    pub cache_bytes: usize,
    /// Bytes of values that a store on PostgreSQL keeps at hand, so that lists need not ask for them; 0 for none.
    pub value_cache_bytes: usize,
    /// How many bytes of recent events stay in memory for watchers that are a little behind.
    pub ring_bytes: usize,
    /// How many events one watcher may have waiting before it reads from the ring or the tables instead.
    pub watcher_queue: usize,
    /// How many connections read at a time.
    pub readers: usize,
    /// Whether a write that finds nobody writing is committed by the thread that asks for it (SQLite). That is
    /// a hop less for a lone writer; but its runtime puts another thread in its place meanwhile, and every
    /// thread keeps memory of its own. A server has it off: what came with the write over one connection
    /// would have to wait for the disk, instead of sharing its commit.
    pub commit_on_caller: bool,
    /// The safety net under notifications: how often to look for other processes' writes.
    pub poll_interval: Duration,
    /// How long a writer waits for a database that it has lost sight of, before it is told so. What it asked
    /// for may still happen: the store goes on to find out.
    pub commit_timeout: Duration,
}

impl Config {
    /// Sensible defaults for an endpoint.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            durability: Durability::Full,
            limits: Limits::default(),
            retention: Some(Duration::from_secs(300)),
            history_bytes: None,
            cache_bytes: 8 << 20,
            value_cache_bytes: 32 << 20,
            ring_bytes: 8 << 20,
            watcher_queue: 256,
            readers: 4,
            commit_on_caller: true,
            poll_interval: Duration::from_secs(1),
            commit_timeout: Duration::from_secs(20),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_shown_without_their_passwords() {
        assert_eq!(Endpoint::parse("memory"), Ok(Endpoint::Memory));
        assert_eq!(Endpoint::parse("sqlite:///a/b.db"), Ok(Endpoint::Sqlite("/a/b.db".into())));
        assert_eq!(Endpoint::parse("state.db"), Ok(Endpoint::Sqlite("state.db".into())));
        for bad in ["", "sqlite://", "mysql://x/y", "postgres://"] {
            assert!(matches!(Endpoint::parse(bad), Err(Error::Invalid(_))), "{bad}");
        }
        let secret =
            Endpoint::parse("postgres://me:s3cr@t@db:5432/o?sslmode=require&password=s3cr@t").unwrap();
        for shown in [format!("{secret}"), format!("{secret:?}")] {
            assert_eq!(shown, "postgres://me@db:5432/o?sslmode=require");
        }
        assert!(!format!("{}", Endpoint::parse("mysql://u:pw@h/d").unwrap_err()).contains("pw"));
    }
}
