//! The registry of listeners and open connections.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use orlop_net::Address;

use crate::authorization::Caller;

/// Id of the one server. Ids of sockets follow it.
pub(super) const SERVER_ID: i64 = 1;

/// The registry of listeners and open connections.
#[derive(Debug)]
pub(crate) struct Channelz {
    pub(super) name: String,
    pub(super) started: SystemTime,
    pub(super) calls: Calls,
    pub(super) next_id: AtomicI64,
    pub(super) listening: Mutex<BTreeMap<i64, Address>>,
    /// Weak: an entry ends with its connection and the last call on it.
    pub(super) open: Mutex<BTreeMap<i64, Weak<OpenSocket>>>,
}

/// Counts of calls, or of the streams of one connection.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) started: AtomicI64,
    pub(super) succeeded: AtomicI64,
    pub(super) failed: AtomicI64,
    pub(super) last_started_ms: AtomicI64,
}

impl Calls {
    fn start(&self) {
        self.started.fetch_add(1, Relaxed);
        self.last_started_ms.store(now_ms(), Relaxed);
    }

    fn end(&self, succeeded: bool) {
        let counter = if succeeded { &self.succeeded } else { &self.failed };
        counter.fetch_add(1, Relaxed);
    }
}

/// TLS parameters of a connection.
#[derive(Debug)]
pub(crate) struct Security {
    pub(crate) cipher_suite: String,
    pub(crate) remote_certificate: Vec<u8>,
}

/// The two ends of a connection.
#[derive(Debug)]
pub(super) enum Ends {
    Unix { path: String, remote: String },
    Tcp { local: SocketAddr, remote: SocketAddr },
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct OpenSocket {
    pub(super) id: i64,
    pub(super) ends: Ends,
    pub(super) security: Option<Security>,
    pub(super) streams: Calls,
    pub(super) sent: AtomicI64,
    pub(super) received: AtomicI64,
    pub(super) last_sent_ms: AtomicI64,
    pub(super) last_received_ms: AtomicI64,
    pub(super) channelz: Weak<Channelz>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data stays consistent even if a holder panics.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or_default()
}

impl Channelz {
    pub(crate) fn new(name: String) -> Arc<Self> {
        Arc::new(Self {
            name,
            started: SystemTime::now(),
            calls: Calls::default(),
            next_id: AtomicI64::new(SERVER_ID + 1),
            listening: Mutex::default(),
            open: Mutex::default(),
        })
    }

    /// Registers a listener.
    pub(crate) fn listen(&self, address: Address) {
        let id = self.next_id.fetch_add(1, Relaxed);
        lock(&self.listening).insert(id, address);
    }

    pub(crate) fn open_unix(self: &Arc<Self>, path: &str, caller: &Caller) -> Arc<OpenSocket> {
        self.open(Ends::Unix { path: path.to_owned(), remote: caller.to_string() }, None)
    }

    pub(crate) fn open_tcp(
        self: &Arc<Self>,
        local: SocketAddr,
        remote: SocketAddr,
        security: Option<Security>,
    ) -> Arc<OpenSocket> {
        self.open(Ends::Tcp { local, remote }, security)
    }

    fn open(self: &Arc<Self>, ends: Ends, security: Option<Security>) -> Arc<OpenSocket> {
        let socket = Arc::new(OpenSocket {
            id: self.next_id.fetch_add(1, Relaxed),
            ends,
            security,
            streams: Calls::default(),
            sent: AtomicI64::new(0),
            received: AtomicI64::new(0),
            last_sent_ms: AtomicI64::new(0),
            last_received_ms: AtomicI64::new(0),
            channelz: Arc::downgrade(self),
        });
        lock(&self.open).insert(socket.id, Arc::downgrade(&socket));
        socket
    }

    pub(super) fn socket(&self, id: i64) -> Option<Arc<OpenSocket>> {
        lock(&self.open).get(&id).and_then(Weak::upgrade)
    }
}

impl OpenSocket {
    pub(crate) fn call_started(&self) {
        self.streams.start();
        if let Some(channelz) = self.channelz.upgrade() {
            channelz.calls.start();
        }
    }

    pub(crate) fn call_ended(&self, succeeded: bool) {
        self.streams.end(succeeded);
        if let Some(channelz) = self.channelz.upgrade() {
            channelz.calls.end(succeeded);
        }
    }

    pub(crate) fn sent(&self, messages: u64) {
        self.sent.fetch_add(messages as i64, Relaxed);
        self.last_sent_ms.store(now_ms(), Relaxed);
    }

    pub(crate) fn received(&self, messages: u64) {
        self.received.fetch_add(messages as i64, Relaxed);
        self.last_received_ms.store(now_ms(), Relaxed);
    }
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        if let Some(channelz) = self.channelz.upgrade() {
            lock(&channelz.open).remove(&self.id);
        }
    }
}
