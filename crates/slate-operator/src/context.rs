//! State that the reconcilers share.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::core::v1::{Secret, Service},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    runtime::{
        controller::Action,
        events::{Event, EventType, Recorder, Reporter},
    },
};
use slate_client::Options as ClientOptions;

use crate::api::{PORT, Server};

/// Field manager and reporter.
pub(crate) const MANAGER: &str = "slate-operator";
/// Time limit of one call to a server.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of one reconciliation.
const RECONCILE_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest back-off after failures.
const BACKOFF_MAX_S: u64 = 300;
/// Back-off before a failed index build is retried: it reads the whole collection, and mostly fails again.
const REBUILD_BACKOFF_MIN: Duration = Duration::from_secs(30);
/// Longest such back-off.
const REBUILD_BACKOFF_MAX: Duration = Duration::from_secs(3600);

/// Settings of the operator.
#[derive(Debug, Clone)]
pub struct Options {
    /// Image of slate-server for Servers that name none.
    pub image: String,
    /// Namespace of the lease for leader election, unless it is off.
    pub lease_namespace: Option<String>,
    /// Where servers are reached.
    pub addresses: Addresses,
}

/// Where servers are reached.
#[derive(Debug, Clone)]
pub enum Addresses {
    /// At their Services, by cluster DNS.
    Services,
    /// At fixed addresses, by `namespace/name`. For tests.
    Fixed(HashMap<String, String>),
}

/// Reason why a reconciliation failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The Kubernetes API refused or failed.
    #[error("Kubernetes API: {0}")]
    Kube(#[from] kube::Error),
    /// The server refused or could not be reached.
    #[error("server: {0}")]
    Server(#[from] slate_client::Error),
    /// The finalizer could not be applied.
    #[error("finalizer: {0}")]
    Finalizer(String),
    /// A Secret or certificate is unusable.
    #[error("{0}")]
    Secret(String),
    /// A reconciliation took too long.
    #[error("not done within {0:?}")]
    TimedOut(Duration),
    /// The operator lost its lease.
    #[error("leader election: {0}")]
    Leader(String),
}

pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) options: Options,
    recorder: Recorder,
    /// Failures in a row, by object.
    failures: Mutex<HashMap<String, u32>>,
    /// Collections with failed index builds, by object.
    rebuilds: Mutex<HashMap<String, Rebuild>>,
}

/// Back-off of a failed index build.
struct Rebuild {
    /// Generation of the Collection that failed.
    generation: Option<i64>,
    delay: Duration,
    due: Instant,
}

impl Context {
    pub(crate) fn new(client: Client, options: Options) -> Self {
        let recorder = Recorder::new(client.clone(), Reporter::from(MANAGER));
        Self { client, options, recorder, failures: Mutex::default(), rebuilds: Mutex::default() }
    }

    /// Publishes an Event. One that cannot be published is only logged.
    pub(crate) async fn event<K: Resource<DynamicType = ()>>(
        &self,
        object: &K,
        warning: bool,
        reason: &str,
        note: &str,
    ) {
        let event = Event {
            type_: if warning { EventType::Warning } else { EventType::Normal },
            reason: reason.to_owned(),
            note: Some(note.to_owned()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        if let Err(error) = self.recorder.publish(&event, &object.object_ref(&())).await {
            tracing::warn!(%error, reason, "event could not be published");
        }
    }

    /// Resets an object's back-off.
    pub(crate) fn reset_backoff<K: Resource<DynamicType = ()>>(&self, object: &K) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(object));
    }

    /// Requeues an object with a delay that doubles with every failure.
    pub(crate) fn back_off<K: Resource<DynamicType = ()>>(&self, object: &K) -> Action {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(key(object)).or_insert(0);
        let delay = (1_u64 << (*count).min(16)).min(BACKOFF_MAX_S);
        *count += 1;
        Action::requeue(Duration::from_secs(delay))
    }

    /// Returns true if failed index builds of an object are due for a retry: after a delay that doubles each time, or at
    /// once when its spec has changed.
    pub(crate) fn should_rebuild<K: Resource<DynamicType = ()>>(&self, object: &K) -> bool {
        let generation = object.meta().generation;
        let now = Instant::now();
        let first = Rebuild { generation, delay: REBUILD_BACKOFF_MIN, due: now + REBUILD_BACKOFF_MIN };
        let mut rebuilds = self.rebuilds.lock().unwrap_or_else(PoisonError::into_inner);
        let rebuild = rebuilds.entry(key(object)).or_insert(first);
        if rebuild.generation != generation {
            *rebuild = Rebuild { generation, delay: REBUILD_BACKOFF_MIN, due: now + REBUILD_BACKOFF_MIN };
            return true;
        }
        let due = now >= rebuild.due;
        if due {
            rebuild.delay = (rebuild.delay * 2).min(REBUILD_BACKOFF_MAX);
            rebuild.due = now + rebuild.delay;
        }
        due
    }

    /// Returns the time until [`Context::should_rebuild`] is true for an object.
    pub(crate) fn until_rebuild<K: Resource<DynamicType = ()>>(&self, object: &K) -> Duration {
        let rebuilds = self.rebuilds.lock().unwrap_or_else(PoisonError::into_inner);
        let due =
            rebuilds.get(&key(object)).map(|rebuild| rebuild.due.saturating_duration_since(Instant::now()));
        due.unwrap_or(REBUILD_BACKOFF_MIN)
    }

    /// Resets the back-off of an object's failed index builds.
    pub(crate) fn clear_rebuild<K: Resource<DynamicType = ()>>(&self, object: &K) {
        self.rebuilds.lock().unwrap_or_else(PoisonError::into_inner).remove(&key(object));
    }

    /// Builds a client of a server, with time limits, its token and its certificate.
    pub(crate) async fn connect(&self, server: &Server) -> Result<slate_client::Client, Error> {
        let (name, namespace) = (server.name_any(), server.namespace().unwrap_or_default());
        let host = format!("{name}.{namespace}.svc.cluster.local");
        let address = match &self.options.addresses {
            Addresses::Services => self.service_address(&name, &namespace, &host).await?,
            Addresses::Fixed(addresses) => {
                let address = addresses.get(&format!("{namespace}/{name}"));
                address.cloned().ok_or_else(|| Error::Secret(format!("no address of {namespace}/{name}")))?
            }
        };
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &namespace);
        let security = server.security();
        let token = match security.token {
            true => Some(secret_text(&secrets, &format!("{name}-token"), "token").await?),
            false => None,
        };
        let tls = match security.tls {
            true => {
                let certificate = secret_text(&secrets, &format!("{name}-tls"), "ca.crt").await?;
                Some((Arc::new(tls_config(&certificate)?), host))
            }
            false => None,
        };
        Ok(slate_client::Client::new(ClientOptions {
            token,
            tls,
            connections: 1,
            connect_timeout: CALL_TIMEOUT,
            timeout: CALL_TIMEOUT,
            ..ClientOptions::new(address)
        }))
    }
}

impl Context {
    /// Returns the address of a server's Service: its cluster IP, which needs no DNS, or else its name.
    async fn service_address(&self, name: &str, namespace: &str, host: &str) -> Result<String, Error> {
        let services: Api<Service> = Api::namespaced(self.client.clone(), namespace);
        let cluster_ip = services.get_opt(name).await?.and_then(|service| service.spec?.cluster_ip);
        Ok(match cluster_ip.as_deref() {
            None | Some("" | "None") => format!("{host}:{PORT}"),
            Some(address) if address.contains(':') => format!("[{address}]:{PORT}"),
            Some(address) => format!("{address}:{PORT}"),
        })
    }
}

/// Applies the time limit of a reconciliation.
pub(crate) async fn with_timeout<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(RECONCILE_TIMEOUT, work).await.unwrap_or(Err(Error::TimedOut(RECONCILE_TIMEOUT)))
}

fn key<K: Resource<DynamicType = ()>>(object: &K) -> String {
    let ObjectMeta { namespace, name, .. } = object.meta();
    format!("{} {namespace:?} {name:?}", K::kind(&()))
}

async fn secret_text(secrets: &Api<Secret>, name: &str, field: &str) -> Result<String, Error> {
    let secret = secrets.get(name).await?;
    let bytes = secret.data.unwrap_or_default().remove(field);
    let bytes = bytes.ok_or_else(|| Error::Secret(format!("Secret {name} has no {field}")))?;
    String::from_utf8(bytes.0).map_err(|_| Error::Secret(format!("{field} of Secret {name} is no text")))
}

fn tls_config(certificate: &str) -> Result<rustls::ClientConfig, Error> {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    let failed = |error: &dyn std::fmt::Display| Error::Secret(format!("certificate: {error}"));
    let mut roots = rustls::RootCertStore::empty();
    let certificate =
        CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| failed(&error))?;
    roots.add(certificate).map_err(|error| failed(&error))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
