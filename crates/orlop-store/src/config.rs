//! Configuration of a store.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use crate::{
    error::{Error, Result},
    transform::Transformer,
};

/// Location of the data.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A SQLite database in this process's memory.
    Memory,
    /// A SQLite database in a file. Its directory must exist.
    Sqlite(PathBuf),
    /// A PostgreSQL database, by connection string.
    Postgres(String),
}

impl Endpoint {
    /// Parses `memory`, `sqlite:///path` (or a bare path) or `postgres://…`.
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

/// Removes the password from a connection URL, in the authority or as a parameter.
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

/// Durability of an acknowledged write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Synced to the disk: survives a power loss.
    #[default]
    Full,
    /// Written to the operating system: survives a crash of this program. A power loss or a crash of the machine may
    /// lose the last writes; what remains is consistent.
    Relaxed,
}

/// Limits on every input. A request over one of them fails with [`Error::TooLarge`].
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
    /// Nesting depth of transactions.
    pub txn_depth: usize,
    /// Bytes of all keys and values that one transaction writes.
    pub txn_bytes: usize,
    /// Bytes of all keys and values that one transaction returns: its reads and previous versions. They are held in
    /// memory until the batch is committed.
    pub txn_read_bytes: usize,
    /// Keys that one transaction may change, those of ranges included.
    pub txn_changes: usize,
    /// Maximum keys of one read; a read without a limit over a larger range sets `more`.
    pub read_keys: usize,
    /// Transactions queued for the writer before callers get back-pressure.
    pub queue: usize,
    /// Quota of the database in bytes, past which puts (but not deletes) are refused; 0 for none.
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

/// Configuration of a store.
#[derive(Clone, Debug)]
pub struct Config {
    /// Location of the data.
    pub endpoint: Endpoint,
    /// Durability of acknowledged writes.
    pub durability: Durability,
    /// Limits on every input.
    pub limits: Limits,
    /// Time for which history stays readable; `None` keeps it until [`Store::compact`](crate::Store::compact).
    pub retention: Option<Duration>,
    /// Bytes of data past which history is compacted early, all but the last second of it; `None` for no limit.
    pub history_bytes: Option<u64>,
    /// Page cache of the SQLite connection that writes, in bytes; connections that read have a quarter each.
    pub cache_bytes: usize,
    /// Value cache of a store on PostgreSQL in bytes, which saves lists from reading values again; 0 for none.
    pub value_cache_bytes: usize,
    /// Bytes of recent events buffered for watchers that are slightly behind.
    pub ring_bytes: usize,
    /// Bytes of history cached for all watchers that are further behind.
    pub catch_up_bytes: usize,
    /// Maximum commits queued for one watcher, before it catches up from the ring buffer or the log instead.
    pub watcher_queue: usize,
    /// Connections that read.
    pub readers: usize,
    /// Commits on the caller's thread when the writer is idle (SQLite). That saves a lone writer a thread switch, but
    /// the runtime starts another thread in its place meanwhile, and every thread keeps memory of its own. A server
    /// turns it off: other requests on the same connection would wait for the disk instead of sharing the commit.
    pub commit_on_caller: bool,
    /// Returns true on threads that may block. Pages of SQLite are read there, rather than on a blocking thread.
    pub may_block: fn() -> bool,
    /// Interval of polling for other processes' writes, in case a notification is lost.
    pub poll_interval: Duration,
    /// Time a caller waits for the outcome of a commit on an unreachable database, before it gets
    /// [`Error::AmbiguousCommit`]. The store keeps resolving the outcome.
    pub commit_timeout: Duration,
    /// Disk space kept in reserve beside a SQLite file, so that deletes and a restart succeed on a full disk; 0 for none.
    pub reserve_bytes: u64,
    /// Writes speculatively on PostgreSQL: one round trip a batch instead of two. Off, every batch reads under the
    /// exclusive lock first.
    pub speculative_writes: bool,
    /// Encodes values before they are stored, such as by encryption.
    pub transformer: Option<Arc<dyn Transformer>>,
}

impl Config {
    /// Returns the defaults for an endpoint.
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
            catch_up_bytes: 32 << 20,
            watcher_queue: 256,
            readers: 4,
            commit_on_caller: true,
            may_block: || false,
            poll_interval: Duration::from_secs(1),
            commit_timeout: Duration::from_secs(20),
            reserve_bytes: 4 << 20,
            speculative_writes: true,
            transformer: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_parse_and_display_without_passwords() {
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
