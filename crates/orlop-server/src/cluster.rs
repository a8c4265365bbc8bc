//! One cluster: a store, a prefix in it, and the kinds it serves. A value, never a global: two clusters in
//! one process do not meet.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use orlop_api::{object_meta, status::Status, time::Time};
use orlop_store::{Error, KeyRange, KeyValue, LeaseId, Read, Revision, Store, Txn, TxnResult};
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    admission::Admission,
    custom::{self, Customs},
    generated_name::{self, Endings},
    issuer::Issuer,
    openapi,
    registry::{Kind, Kinds, Registry},
    stored,
};

/// How long a request waits for a revision that it has heard of and this process has not.
const FRESHNESS: Duration = Duration::from_secs(3);

/// A cluster.
#[derive(Debug)]
pub struct Cluster {
    /// Where everything is kept.
    pub store: Store,
    /// What is served.
    pub registry: Registry,
    /// What OpenAPI documents have been made.
    pub(crate) openapi: openapi::Kept,
    /// The kinds that users have defined.
    pub(crate) custom: Customs,
    prefix: String,
    issuer: Issuer,
    admission: Vec<Arc<dyn Admission>>,
    endings: Arc<dyn Endings>,
    /// The lease that objects with a time to live hang on for now, by that time.
    leases: Mutex<HashMap<u64, (LeaseId, Instant)>>,
    /// Namespaces that took new objects when they were last looked at, and their revision then. A write
    /// that relies on one compares it.
    open_namespaces: Mutex<HashMap<String, Revision>>,
    /// Set once, when the server is to stop.
    closing: watch::Sender<bool>,
}

/// Namespaces that are remembered.
const OPEN_NAMESPACES: usize = 1024;

/// An object as it was read.
#[derive(Clone, Debug)]
pub struct Found {
    /// The stored bytes, without the resourceVersion.
    pub bytes: Bytes,
    /// The resourceVersion.
    pub revision: Revision,
}

impl Found {
    /// The object, decoded, in the form it is stored in. `Kind::read` has it as it is served.
    pub fn as_stored(&self) -> Result<Value, Status> {
        stored::decode(&self.bytes, self.revision)
            .map_err(|error| Status::internal(&format!("the stored object is damaged: {error}")))
    }
}

impl From<KeyValue> for Found {
    fn from(kv: KeyValue) -> Self {
        Self { bytes: kv.value, revision: kv.revision }
    }
}

impl Cluster {
    /// A cluster below `/registry/` of a store. `issuer` signs its service accounts' tokens.
    pub fn new(store: Store, kinds: Kinds, issuer: Issuer) -> Self {
        Self {
            store,
            registry: Registry::new(kinds),
            openapi: openapi::Kept::default(),
            custom: Customs::default(),
            prefix: "/registry/".to_owned(),
            issuer,
            admission: Vec::new(),
            endings: Arc::new(generated_name::Random),
            leases: Mutex::default(),
            open_namespaces: Mutex::default(),
            closing: watch::Sender::new(false),
        }
    }

    /// Gives somebody a say in every write, after those who have one already.
    #[must_use]
    pub fn with_admission(mut self, admission: Arc<dyn Admission>) -> Self {
        self.admission.push(admission);
        self
    }

    /// Who has a say in writes, in turn.
    pub(crate) fn admission(&self) -> &[Arc<dyn Admission>] {
        &self.admission
    }

    /// Names what the server names with other endings than those it makes up.
    #[must_use]
    pub fn with_endings(mut self, endings: Arc<dyn Endings>) -> Self {
        self.endings = endings;
        self
    }

    /// What generated names end with.
    pub(crate) fn endings(&self) -> &dyn Endings {
        &*self.endings
    }

    /// Who signs tokens here.
    pub(crate) fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Ends open watches and turns readiness off.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Whether the server is stopping.
    pub fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Refuses what would stay open, once the server stops: a watch that ended as it began would only be asked for
    /// again, without end.
    pub(crate) fn may_stay_open(&self) -> Result<(), Status> {
        if self.is_closing() {
            let message = "The apiserver is shutting down, please try again later.";
            return Err(Status::too_many_requests(message, 5));
        }
        Ok(())
    }

    /// Returns when the server is to stop.
    pub fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut closing = self.closing.subscribe();
        async move {
            // An error means that the cluster is gone, which is as good.
            let _ = closing.wait_for(|closing| *closing).await;
        }
    }

    /// The key of an object.
    pub fn key(&self, kind: &Kind, namespace: &str, name: &str) -> String {
        match kind.placed(namespace, name) {
            None => self.placed(kind, namespace, name),
            Some((namespace, name)) => self.placed(kind, &namespace, &name),
        }
    }

    /// What every key of a collection begins with: of one namespace, or of all.
    pub fn collection(&self, kind: &Kind, namespace: &str) -> String {
        let placed = kind.placed(namespace, "");
        self.placed(kind, placed.as_ref().map_or(namespace, |(namespace, _)| namespace), "")
    }

    fn placed(&self, kind: &Kind, namespace: &str, name: &str) -> String {
        let slash = if namespace.is_empty() { "" } else { "/" };
        [&self.prefix, kind.key_prefix().as_str(), namespace, slash, name].concat()
    }

    /// A key of the cluster's own, beside its objects.
    pub(crate) fn own_key(&self, rest: &str) -> String {
        format!("{}{rest}", self.prefix)
    }

    /// An object at its newest.
    pub async fn find(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Option<Found>, Status> {
        let key = self.key(kind, namespace, name);
        let read = self.store.read(Read::new(KeyRange::key(key))).await.map_err(|error| trouble(&error))?;
        Ok(read.kvs.into_iter().next().map(Found::from))
    }

    /// An object at its newest, which must exist.
    pub async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Found, Status> {
        let found = self.find(kind, namespace, name).await?;
        found.ok_or_else(|| Status::not_found(&kind.group_resource(), name))
    }

    /// An object at its newest, decoded, as it is served. It must exist.
    pub async fn object(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Value, Status> {
        kind.read(&self.get(kind, namespace, name).await?).await
    }

    /// Runs a transaction that writes objects of a kind. Once it is answered, what it defines is served.
    pub(crate) async fn commit(&self, kind: &Kind, txn: Txn) -> Result<TxnResult, Status> {
        let result = self.store.txn(txn).await.map_err(|error| trouble(&error))?;
        if result.succeeded && custom::is_definition(kind) {
            self.custom.wait_for(result.revision).await;
        }
        Ok(result)
    }

    /// The revision at which a namespace was open, if that is remembered.
    pub(crate) fn open_namespace(&self, namespace: &str) -> Option<Revision> {
        self.open_namespaces.lock().unwrap_or_else(PoisonError::into_inner).get(namespace).copied()
    }

    /// Remembers the revision of a namespace that is open, or that nothing is known of it any more.
    pub(crate) fn remember_namespace(&self, namespace: &str, open: Option<Revision>) {
        let mut known = self.open_namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        match open {
            None => drop(known.remove(namespace)),
            Some(revision) => {
                if known.len() >= OPEN_NAMESPACES {
                    known.clear();
                }
                known.insert(namespace.to_owned(), revision);
            }
        }
    }

    /// A lease for objects that live `seconds`. Objects of the same minute share one: they go together, up to
    /// a minute late.
    pub(crate) async fn lease(&self, seconds: u64) -> Result<LeaseId, Status> {
        const SHARED_FOR: Duration = Duration::from_secs(60);
        let known = self.leases.lock().unwrap_or_else(PoisonError::into_inner).get(&seconds).copied();
        if let Some((lease, granted)) = known
            && granted.elapsed() < SHARED_FOR
        {
            return Ok(lease);
        }
        let ttl = Duration::from_secs(seconds) + SHARED_FOR;
        let lease = self.store.grant(None, ttl).await.map_err(|error| trouble(&error))?.id;
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).insert(seconds, (lease, Instant::now()));
        Ok(lease)
    }

    /// Waits until reads are not older than a revision.
    pub async fn not_older_than(&self, revision: Revision) -> Result<(), Status> {
        self.store.wait_for(revision, FRESHNESS).await.map_err(|error| trouble(&error))
    }
}

/// The store's troubles, as a client is told.
pub fn trouble(error: &Error) -> Status {
    match error {
        Error::Expired { .. } => Status::expired("The resourceVersion for the provided list is too old."),
        Error::FutureRevision { requested, current } => {
            Status::too_large_resource_version((*requested).max(0) as u64, (*current).max(0) as u64)
        }
        Error::TooLarge { .. } => Status::request_entity_too_large(&error.to_string()),
        Error::Full(_) => Status::internal(&format!("etcdserver: mvcc: database space exceeded ({error})")),
        Error::Unavailable(_) => Status::service_unavailable(error.to_string()),
        Error::Unresolved(_) => Status::timeout(&error.to_string(), 1),
        _ => Status::internal(&error.to_string()),
    }
}

/// The time now.
pub fn now() -> Time {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { unix_seconds: elapsed.as_secs() as i64, nanoseconds: elapsed.subsec_nanos() }
}

/// A new object's uid: random, version 4.
pub fn new_uid() -> String {
    let mut bytes: [u8; 16] = rand::random();
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 0x0f] {
            text.extend(char::from_digit(digit.into(), 16));
        }
    }
    text
}

/// Whether an object is on its way out.
pub fn is_terminating(object: &Value) -> bool {
    !object_meta::text(object_meta::of(object), "deletionTimestamp").is_empty()
}
