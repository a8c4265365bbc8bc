//! One plugin: its current seed, the seeds of stored values, and its health.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::{Duration, Instant},
};

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;

use super::{
    client::{Client, DecryptRequest, EncryptRequest, StatusResponse},
    envelope::{DataKey, EncryptedObject, SEED, SEED_BYTES, SourceId, validate_key_id},
};
use crate::{
    config::KmsConfig,
    metrics::{Direction, Metrics},
    provider::Opened,
};

/// Seeds of stored values that are kept in memory. There is one for each key id and start of a server.
const KEYS_MAX: usize = 4096;
/// Calls to decrypt seeds at once.
const FETCHES_MAX: usize = 8;
/// Time for which the result of a health check is used again.
const HEALTHY_FOR: Duration = Duration::from_secs(20);
const UNHEALTHY_FOR: Duration = Duration::from_secs(3);

/// Intervals of the status polls of KMS plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KmsTiming {
    /// Time from one poll of a healthy plugin to the next.
    pub healthy_interval: Duration,
    /// Time from one poll of an unhealthy plugin to the next.
    pub unhealthy_interval: Duration,
    /// Time for which values are still written after the last successful poll.
    pub write_max: Duration,
}

impl Default for KmsTiming {
    fn default() -> Self {
        Self {
            healthy_interval: Duration::from_secs(60),
            unhealthy_interval: Duration::from_secs(10),
            write_max: Duration::from_secs(180),
        }
    }
}

/// A KMS v2 plugin.
pub(crate) struct Plugin {
    name: String,
    prefix: Vec<u8>,
    client: Client,
    timing: KmsTiming,
    metrics: Metrics,
    state: RwLock<Option<Arc<State>>>,
    keys: Mutex<HashMap<SourceId, Arc<DataKey>>>,
    fetches: Semaphore,
    probe: tokio::sync::Mutex<Probe>,
}

/// The seed that values are written with.
struct State {
    /// Without data.
    object: EncryptedObject,
    key_id_hash: String,
    key: Arc<DataKey>,
    expires: Instant,
}

#[derive(Default)]
struct Probe {
    /// API version of the first answer, which must not change.
    version: String,
    last: Option<(Instant, Result<(), String>)>,
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Result of a look at a value under a plugin's key.
pub(crate) enum Lookup {
    Opened(Opened),
    /// The plugin has to decrypt the seed first.
    NeedsKey(Box<NeededKey>),
}

/// A seed that is not in memory.
pub(crate) struct NeededKey(EncryptedObject);

impl Plugin {
    /// Connects to a plugin and asks for its status once. It need not run yet.
    pub(crate) async fn start(config: &KmsConfig, timing: KmsTiming, metrics: &Metrics) -> Arc<Self> {
        let plugin = Arc::new(Self {
            name: config.name.clone(),
            prefix: format!("k8s:enc:kms:v2:{}:", config.name).into_bytes(),
            client: Client::new(config, metrics.clone()),
            timing,
            metrics: metrics.clone(),
            state: RwLock::default(),
            keys: Mutex::default(),
            fetches: Semaphore::new(FETCHES_MAX),
            probe: tokio::sync::Mutex::default(),
        });
        plugin.poll().await;
        let polled = Arc::downgrade(&plugin);
        tokio::spawn(async move {
            let mut healthy = true;
            loop {
                let interval = if healthy { timing.healthy_interval } else { timing.unhealthy_interval };
                tokio::time::sleep(interval).await;
                // Ends with the configuration.
                let Some(plugin) = polled.upgrade() else { return };
                healthy = plugin.poll().await;
            }
        });
        plugin
    }

    async fn poll(&self) -> bool {
        let mut probe = self.probe.lock().await;
        let result = self.refresh(&mut probe).await;
        if let Err(error) = &result {
            tracing::warn!(plugin = self.name, error, "KMS plugin failed its health check");
        }
        let healthy = result.is_ok();
        probe.last = Some((Instant::now(), result));
        healthy
    }

    /// Returns the plugin's health, as of a short while ago.
    pub(crate) async fn check(&self) -> Result<(), String> {
        let mut probe = self.probe.lock().await;
        if let Some((at, result)) = &probe.last {
            let fresh_for = if result.is_ok() { HEALTHY_FOR } else { UNHEALTHY_FOR };
            if at.elapsed() < fresh_for.min(self.timing.healthy_interval) {
                return result.clone();
            }
        }
        let result = self.refresh(&mut probe).await;
        probe.last = Some((Instant::now(), result.clone()));
        result
    }

    /// Asks for the status, and takes a new seed if the key id has changed.
    async fn refresh(&self, probe: &mut Probe) -> Result<(), String> {
        // Before the calls: the time to write counts from here.
        let expires = Instant::now() + self.timing.write_max;
        let status = self.client.status().await.map_err(|error| {
            let name = &self.name;
            format!("failed to perform status section of the healthz check for KMS Provider {name}, error: {error}")
        })?;
        let mut errors = Vec::new();
        let StatusResponse { version, healthz, key_id } = status;
        if healthz != "ok" {
            errors.push(format!("got unexpected healthz status: {healthz}"));
        }
        if version != "v2" && version != "v2beta1" {
            errors.push(format!("expected KMSv2 API version v2, got {version}"));
        } else if probe.version.is_empty() {
            probe.version = version;
        } else if probe.version != version {
            errors.push(format!(
                "KMSv2 API version should not change after the initial status response version {}, got {version}",
                probe.version
            ));
        }
        match validate_key_id(&key_id) {
            Err(why) => {
                let error = if key_id.is_empty() { "empty" } else { "too_long" };
                self.metrics.key_id_invalid(&self.name, error);
                errors.push(format!("got invalid KMSv2 KeyID hash {:?}: {why}", hash(&key_id)));
            }
            Ok(()) => {
                self.metrics.key_reported(&self.name, &hash(&key_id));
                errors.extend(self.rotate(&key_id, expires).await.err());
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        let errors = orlop_api::field_error::aggregate(&errors);
        Err(format!("kmsv2 Provider {} is not healthy, error: {errors}", self.name))
    }

    /// Keeps the seed if it is of the key id, and otherwise makes another. On failure the old one stays, and expires.
    async fn rotate(&self, key_id: &str, expires: Instant) -> Result<(), String> {
        if let Some(state) = self.state().filter(|state| state.object.key_id == key_id) {
            let renewed = State {
                object: state.object.clone(),
                key_id_hash: state.key_id_hash.clone(),
                key: state.key.clone(),
                expires,
            };
            self.set_state(renewed);
            return Ok(());
        }
        let failed = |why: &str, encrypt_key_id: &str| {
            format!(
                "failed to rotate DEK, error: {why}, statusKeyIDHash={:?}, encryptKeyIDHash={:?}",
                hash(key_id),
                hash(encrypt_key_id)
            )
        };
        let seed: [u8; SEED_BYTES] = rand::random();
        let request = EncryptRequest { plaintext: Bytes::copy_from_slice(&seed), uid: uid() };
        let answer = self.client.encrypt(request).await;
        let answer = answer.map_err(|error| failed(&format!("failed to encrypt DEK, error: {error}"), ""))?;
        let object = EncryptedObject {
            data: Bytes::new(),
            key_id: answer.key_id,
            source: answer.ciphertext,
            annotations: answer.annotations.into_iter().collect(),
            source_type: SEED,
        };
        object.validate().map_err(|why| failed(&why, &object.key_id))?;
        if object.key_id != key_id {
            return Err(failed("the key ids of status and encrypt differ", &object.key_id));
        }
        if object.source.as_ref() == seed {
            return Err(failed("the plugin did not encrypt the DEK", &object.key_id));
        }
        let key = Arc::new(DataKey::new(SEED, &seed)?);
        self.remember(object.source_id(), key.clone());
        self.set_state(State { object, key_id_hash: hash(key_id), key, expires });
        tracing::info!(plugin = self.name, key_id_hash = hash(key_id), "KMS plugin has a new key");
        Ok(())
    }

    fn state(&self) -> Option<Arc<State>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_state(&self, state: State) {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(state));
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<SourceId, Arc<DataKey>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, id: SourceId, key: Arc<DataKey>) {
        let mut keys = self.keys();
        if keys.len() >= KEYS_MAX {
            // Rare: the plugin is asked again for those in use.
            keys.clear();
        }
        keys.insert(id, key);
        self.metrics.set_cached_keys(&self.name, keys.len());
    }

    /// Encrypts a value with the current seed.
    pub(crate) fn encrypt(&self, value: &[u8], authenticated: &[u8]) -> Result<Bytes, String> {
        let Some(state) = self.state() else {
            return Err(format!("KMS provider {} has not been available yet", self.name));
        };
        if Instant::now() > state.expires {
            return Err(format!(
                "encryptedDEKSource with keyID hash {:?} expired: KMS provider {} is not healthy",
                hash(&state.object.key_id),
                self.name
            ));
        }
        let object =
            EncryptedObject { data: state.key.encrypt(value, authenticated)?, ..state.object.clone() };
        let mut stored = BytesMut::with_capacity(self.prefix.len() + object.encoded_len());
        stored.put_slice(&self.prefix);
        object.encode(&mut stored).map_err(|error| error.to_string())?;
        self.metrics.key_used(Direction::ToStorage, &self.name, &state.key_id_hash);
        Ok(stored.freeze())
    }

    /// Decrypts a value of this plugin; `None` if it is of another provider.
    pub(crate) fn decrypt(&self, stored: &[u8], authenticated: &[u8]) -> Option<Lookup> {
        let object = match EncryptedObject::open(stored.strip_prefix(&self.prefix[..])?) {
            Ok(object) => object,
            Err(error) => return Some(Lookup::Opened(Err(error))),
        };
        let state = self.state();
        let known = self.keys().get(&object.source_id()).cloned();
        let Some(key) = known else { return Some(Lookup::NeedsKey(Box::new(NeededKey(object)))) };
        let stale = state.is_none_or(|state| {
            (&state.object.key_id, state.object.source_type) != (&object.key_id, object.source_type)
        });
        self.metrics.key_used(Direction::FromStorage, &self.name, &hash(&object.key_id));
        Some(Lookup::Opened(key.decrypt(&object.data, authenticated).map(|value| (value, stale))))
    }

    /// Has the plugin decrypt a seed.
    pub(crate) async fn fetch(&self, needed: NeededKey) -> Result<(), String> {
        let object = needed.0;
        let _permit = self.fetches.acquire().await;
        if self.keys().contains_key(&object.source_id()) {
            return Ok(());
        }
        let request = DecryptRequest {
            ciphertext: object.source.clone(),
            uid: uid(),
            key_id: object.key_id.clone(),
            annotations: object.annotations.clone().into_iter().collect(),
        };
        let answer = self.client.decrypt(request).await;
        let answer = answer.map_err(|error| format!("failed to decrypt DEK, error: {error}"))?;
        let key = DataKey::new(object.source_type, &answer.plaintext)?;
        self.remember(object.source_id(), Arc::new(key));
        Ok(())
    }
}

/// Returns the hash of a key id, which is logged instead of it.
fn hash(key_id: &str) -> String {
    if key_id.is_empty() {
        return String::new();
    }
    let digest: String = Sha256::digest(key_id).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digest}")
}

/// Returns an identifier of a call, for the plugin's log.
fn uid() -> String {
    format!("{:032x}", rand::random::<u128>())
}
