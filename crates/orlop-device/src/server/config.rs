//! Settings of a server, and start-up errors.

use std::{io, path::PathBuf, time::Duration};

use orlop_net::{Address, TlsError, TlsOptions};
use orlop_store::Endpoint;

use crate::{
    authorization::WritePolicy,
    kinds::{self, Kind},
    shape::ShapeError,
};

/// Settings of a server.
#[derive(Debug)]
pub struct Config {
    /// Kinds to serve.
    pub kinds: Vec<&'static Kind>,
    /// Storage of objects.
    pub storage: Endpoint,
    /// Path of the unix socket.
    pub socket: Option<PathBuf>,
    /// Permission bits of the unix socket.
    pub socket_mode: u32,
    /// User and group of the unix socket, if not the server's own.
    pub socket_owner: (Option<u32>, Option<u32>),
    /// TCP address.
    pub tcp: Option<Address>,
    /// TLS for the TCP address.
    pub tls: Option<TlsOptions>,
    /// Authorization of writes.
    pub policy: WritePolicy,
    /// Address of health, reflection and channelz, without the kinds.
    pub admin: Option<Address>,
    /// Address of `/metrics` and `/version` over HTTP.
    pub metrics: Option<Address>,
    /// Interval of storage probes.
    pub monitor_period: Duration,
    /// Interval of bookmarks.
    pub bookmark_period: Duration,
    /// Interval of HTTP/2 PINGs to an idle client. It is disconnected if it does not reply within 20 s, or within
    /// another interval if that is shorter.
    pub keep_alive: Duration,
    /// Deadline of open calls on shutdown.
    pub grace: Duration,
    /// Retention of history, for watches that resume. In memory also bounded by bytes.
    pub retention: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kinds: kinds::ALL.to_vec(),
            storage: Endpoint::Memory,
            socket: None,
            socket_mode: 0o666,
            socket_owner: (None, None),
            tcp: None,
            tls: None,
            policy: WritePolicy::default(),
            admin: None,
            metrics: None,
            monitor_period: Duration::from_secs(10),
            bookmark_period: Duration::from_secs(60),
            keep_alive: Duration::from_secs(60),
            grace: Duration::from_secs(25),
            retention: Duration::from_secs(300),
        }
    }
}

/// Failure to start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: String,
        /// The cause.
        error: io::Error,
    },
    /// TLS cannot be set up.
    #[error("cannot serve TLS: {0}")]
    Tls(#[from] TlsError),
    /// The store cannot be opened.
    #[error("cannot open the storage: {0}")]
    Store(#[from] orlop_store::Error),
    /// A kind's `.proto` does not fit the envelopes.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The `.proto` files conflict.
    #[error("cannot describe the services: {0}")]
    Reflection(String),
    /// Invalid settings.
    #[error("{0}")]
    Settings(String),
}

impl Config {
    /// Rejects unsafe or contradictory settings.
    pub(crate) fn validate(&self) -> Result<(), StartError> {
        let invalid = |why: &str| Err(StartError::Settings(why.to_owned()));
        if self.socket.is_none() && self.tcp.is_none() {
            return invalid("no address to listen on");
        }
        if let (Some(address), None) = (&self.tcp, &self.tls)
            && !address.is_local()
        {
            return invalid(
                "a TCP address that other machines reach needs TLS: give a certificate and a key",
            );
        }
        for (purpose, address) in [("health and channelz", &self.admin), ("metrics", &self.metrics)] {
            if let Some(address) = address
                && !address.is_local()
            {
                tracing::warn!(%address, purpose, "served without authentication to other machines");
            }
        }
        Ok(())
    }
}
