//! The transformer of a store: providers by resource, automatic reload, and the key of the index.
//!
//! Index terms of encrypted objects are stored as HMACs under a key of their own, so that they can be looked up and not
//! read. This key is random, made once for a database, and kept in it, encrypted by the first provider that encrypts. It
//! does not change when keys are rotated: the terms of all objects would change with it.

use futures_util::future::BoxFuture;
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::{Duration, Instant},
};

use aws_lc_rs::hmac;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use orlop_store::{Decoded, KeyRange, KeyValue, Put, Read, Store, Transformer, Txn};
use prometheus_client::registry::Registry;

use crate::{
    config::{self, ConfigError},
    kms::KmsTiming,
    metrics::{Direction, Metrics},
    provider::ENCRYPTED,
    resources::{Attempt, Providers, Resources},
};

/// Name of the health check of KMS plugins.
pub const PROBE_NAME: &str = "kms-providers";
/// Storage key of the index' key.
const INDEX_KEY: &str = "/orlop/encryption/index-key";
/// Interval of looks at the configuration file.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);
/// Time that a KMS plugin gets to start.
const START_MAX: Duration = Duration::from_secs(30);
/// Bytes of an HMAC that are kept.
const TERM_BYTES: usize = 16;

/// Encryption of stored objects.
pub struct Encryption {
    path: PathBuf,
    timing: KmsTiming,
    metrics: Metrics,
    resources: RwLock<Arc<Resources>>,
    index_key: RwLock<Option<hmac::Key>>,
    /// The file as it was last loaded.
    loaded: tokio::sync::Mutex<Vec<u8>>,
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Encryption {
    /// Reads a configuration file and starts its KMS plugins.
    pub fn load(path: &Path, timing: KmsTiming) -> BoxFuture<'_, Result<Arc<Self>, ConfigError>> {
        Box::pin(async move {
            let bytes = config::read(path)?;
            let metrics = Metrics::default();
            let resources = Resources::build(&bytes, timing, &metrics).await?;
            Ok(Arc::new(Self {
                path: path.to_owned(),
                timing,
                metrics,
                resources: RwLock::new(Arc::new(resources)),
                index_key: RwLock::default(),
                loaded: tokio::sync::Mutex::new(bytes),
            }))
        })
    }

    fn resources(&self) -> Arc<Resources> {
        self.resources.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Loads or makes the key of the index. Waits a while for KMS plugins that have just started.
    pub fn open_index<'a>(&'a self, store: &'a Store) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let started = tokio::time::Instant::now();
            loop {
                match self.open_index_with(&self.resources(), store).await {
                    Ok(key) => {
                        self.set_index_key(key);
                        return Ok(());
                    }
                    Err(error) if started.elapsed() < START_MAX && self.check().await.is_err() => {
                        tracing::warn!(error, "cannot open the index' key yet: a KMS plugin is not healthy");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                    Err(error) => {
                        return Err(format!("cannot open the key of encrypted index terms: {error}"));
                    }
                }
            }
        })
    }

    fn set_index_key(&self, key: Option<hmac::Key>) {
        if let Some(key) = key {
            *self.index_key.write().unwrap_or_else(PoisonError::into_inner) = Some(key);
        }
    }

    /// Loads or makes the key of the index with the providers of a configuration. `None` if nothing is encrypted.
    async fn open_index_with(
        &self,
        resources: &Resources,
        store: &Store,
    ) -> Result<Option<hmac::Key>, String> {
        for _ in 0..8 {
            let stored = index_key(store).await?;
            let sealed = |key: &[u8]| {
                let encrypted =
                    resources.encrypting().map(|providers| providers.encode(INDEX_KEY.as_bytes(), key));
                encrypted.transpose()
            };
            let Some(kv) = stored else {
                let key: [u8; 32] = rand::random();
                // Nothing is encrypted: nothing has to be hidden.
                let Some(value) = sealed(&key)? else { return Ok(None) };
                let create = Txn::create(Put::new(INDEX_KEY, value));
                store.txn(create).await.map_err(|error| error.to_string())?;
                // Another server may have been first: the stored one counts.
                continue;
            };
            let decoded = decode_with_any(resources.lists(), INDEX_KEY.as_bytes(), &kv.value).await?;
            if decoded.stale
                && let Some(value) = sealed(&decoded.value)?
            {
                let replace = Txn::replace(Put::new(INDEX_KEY, value), kv.revision);
                store.txn(replace).await.map_err(|error| error.to_string())?;
            }
            return Ok(Some(hmac::Key::new(hmac::HMAC_SHA256, &decoded.value)));
        }
        Err("it changes all the time".to_owned())
    }

    /// Deletes the key of the index if nothing is encrypted any more, so that the database can be used without a
    /// configuration. For callers that have written every object again.
    pub async fn forget_unused_index_key(&self, store: &Store) -> Result<(), String> {
        if self.resources().encrypting().is_some() {
            return Ok(());
        }
        let removed = match index_key(store).await? {
            Some(kv) => store.txn(Txn::remove(INDEX_KEY, kv.revision)).await,
            None => return Ok(()),
        };
        removed.map(drop).map_err(|error| error.to_string())
    }

    /// Follows the configuration file: a change is loaded without a restart. One that is not valid is logged and ignored.
    pub fn follow_file(self: &Arc<Self>, store: &Store) {
        let (encryption, store) = (Arc::downgrade(self), store.clone());
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(RELOAD_INTERVAL).await;
                let Some(encryption) = encryption.upgrade() else { return };
                let reloaded = encryption.reload(&store).await;
                if !matches!(reloaded, Ok(false)) {
                    encryption.metrics.reloaded(reloaded.is_ok());
                }
                if let Err(error) = reloaded {
                    tracing::error!(%error, path = %encryption.path.display(), "encryption configuration not reloaded");
                }
            }
        });
    }

    /// Loads the file again if it has changed. Returns true if it has.
    pub fn reload<'a>(&'a self, store: &'a Store) -> BoxFuture<'a, Result<bool, ConfigError>> {
        Box::pin(async move {
            let mut loaded = self.loaded.lock().await;
            let bytes = config::read(&self.path)?;
            if bytes == *loaded {
                return Ok(false);
            }
            let resources = Arc::new(Resources::build(&bytes, self.timing, &self.metrics).await?);
            for plugin in resources.plugins() {
                plugin.check().await.map_err(ConfigError)?;
            }
            // Before anything is encrypted: terms would be stored in clear without a key.
            self.set_index_key(self.open_index_with(&resources, store).await.map_err(ConfigError)?);
            *self.resources.write().unwrap_or_else(PoisonError::into_inner) = resources;
            *loaded = bytes;
            tracing::info!(path = %self.path.display(), "encryption configuration reloaded");
            Ok(true)
        })
    }

    /// Registers the metrics.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// Counts a value that was decoded.
    fn count_decoded(&self, key: &[u8], stored: &[u8], started: Instant, result: &Result<Decoded, String>) {
        let stored = result.is_ok().then_some(stored);
        self.metrics.transformed(Direction::FromStorage, key, stored, started.elapsed());
    }

    /// Returns the health of the KMS plugins.
    pub async fn check(&self) -> Result<(), String> {
        let mut errors = Vec::new();
        for (index, plugin) in self.resources().plugins().iter().enumerate() {
            if let Err(error) = plugin.check().await {
                errors.push(format!("kms-provider-{index}: {error}"));
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(orlop_api::field_error::aggregate(&errors)) }
    }
}

/// Returns true if objects of a database are encrypted, or were and `orlop encrypt` has not decrypted them since.
pub async fn is_encrypted(store: &Store) -> Result<bool, String> {
    Ok(index_key(store).await?.is_some())
}

/// Reads the sealed key of the index.
async fn index_key(store: &Store) -> Result<Option<KeyValue>, String> {
    let read = store.read(Read::new(KeyRange::key(INDEX_KEY))).await.map_err(|error| error.to_string())?;
    Ok(read.kvs.into_iter().next())
}

/// Decodes a value with the first list of providers that can.
async fn decode_with_any(lists: &[Providers], key: &[u8], stored: &[u8]) -> Result<Decoded, String> {
    let mut last = Err("no provider is configured".to_owned());
    for (index, providers) in lists.iter().enumerate() {
        last = decode(providers, key, stored).await;
        if let Ok(decoded) = last {
            return Ok(Decoded { stale: decoded.stale || index > 0, ..decoded });
        }
    }
    last
}

/// Decodes a value, and has plugins decrypt keys for that.
async fn decode(providers: &Providers, key: &[u8], stored: &[u8]) -> Result<Decoded, String> {
    // A key that was fetched may be forgotten before it is used.
    for _ in 0..3 {
        match providers.decode(key, stored) {
            Attempt::Done(result) => return result,
            Attempt::NeedsKey(plugin, needed) => plugin.fetch(needed).await?,
        }
    }
    Err("the key of the value is not available".to_owned())
}

/// Decodes a value of a resource that is not configured. An encrypted one is an error.
fn unconfigured(key: &[u8], stored: &[u8]) -> Result<Decoded, String> {
    // The index' key is decrypted by its owner.
    if stored.starts_with(ENCRYPTED) && key != INDEX_KEY.as_bytes() {
        return Err("identity transformer tried to read encrypted data".to_owned());
    }
    Ok(Decoded { value: Bytes::copy_from_slice(stored), stale: false })
}

#[async_trait::async_trait]
impl Transformer for Encryption {
    fn covers(&self, key: &[u8]) -> bool {
        self.resources().of_key(key).is_some()
    }

    fn may_cover(&self, prefix: &[u8]) -> bool {
        self.resources().may_cover(prefix)
    }

    fn is_encoded(&self, value: &[u8]) -> bool {
        value.starts_with(ENCRYPTED)
    }

    fn encode(&self, key: &[u8], value: &[u8]) -> Result<Bytes, String> {
        match self.resources().of_key(key) {
            Some(providers) => {
                let started = Instant::now();
                let encoded = providers.encode(key, value);
                let stored = encoded.as_deref().ok();
                self.metrics.transformed(Direction::ToStorage, key, stored, started.elapsed());
                encoded
            }
            None => Ok(Bytes::copy_from_slice(value)),
        }
    }

    fn decode_now(&self, key: &[u8], value: &[u8]) -> Option<Result<Decoded, String>> {
        let resources = self.resources();
        let Some(providers) = resources.of_key(key) else { return Some(unconfigured(key, value)) };
        let started = Instant::now();
        match providers.decode(key, value) {
            Attempt::Done(result) => {
                self.count_decoded(key, value, started, &result);
                Some(result)
            }
            Attempt::NeedsKey(..) => None,
        }
    }

    async fn decode(&self, key: &[u8], value: &[u8]) -> Result<Decoded, String> {
        let resources = self.resources();
        match resources.of_key(key) {
            None => unconfigured(key, value),
            Some(providers) => {
                let started = Instant::now();
                let result = decode(providers, key, value).await;
                self.count_decoded(key, value, started, &result);
                result
            }
        }
    }

    fn hides_terms(&self, key: &[u8]) -> bool {
        self.resources().of_key(key).is_some_and(|providers| !providers.writes_clear())
    }

    fn hide_term(&self, field: &str, value: &str) -> String {
        let key = self.index_key.read().unwrap_or_else(PoisonError::into_inner);
        // There is a key as soon as anything is encrypted.
        let Some(key) = &*key else { return value.to_owned() };
        let mut context = hmac::Context::with_key(key);
        for part in [field, value] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        let tag = context.sign();
        let kept = tag.as_ref().get(..TERM_BYTES).unwrap_or_default();
        format!("hmac:{}", URL_SAFE_NO_PAD.encode(kept))
    }
}
