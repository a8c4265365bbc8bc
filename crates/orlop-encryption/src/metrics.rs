//! Metrics of encryption, named as in Kubernetes.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// Values of these come from the configuration and from plugins' key ids, which bounds their number.
type Labels = Vec<(&'static str, String)>;

type Histograms = Family<Labels, Histogram, fn() -> Histogram>;

/// Metrics of encryption. Clones share their values.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    operations: Family<Labels, Counter>,
    durations: Histograms,
    kms_latency: Histograms,
    key_uses: Family<Labels, Counter>,
    key_last_used: Family<Labels, Gauge>,
    key_last_status: Family<Labels, Gauge>,
    invalid_key_ids: Family<Labels, Counter>,
    cached_keys: Family<Labels, Gauge>,
    reloads: Family<Labels, Counter>,
    last_reload: Family<Labels, Gauge>,
}

/// Direction of a transformation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    FromStorage,
    ToStorage,
}

impl Direction {
    fn as_str(self) -> &'static str {
        match self {
            Self::FromStorage => "from_storage",
            Self::ToStorage => "to_storage",
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        // From 5 microseconds up for ciphers, from 0.1 milliseconds up for plugins, doubling, as in Kubernetes.
        let ciphers = || Histogram::new((0..25).map(|power| 5e-6 * f64::from(1 << power)));
        let plugins = || Histogram::new((0..19).map(|power| 1e-4 * f64::from(1 << power)));
        Self {
            operations: Family::default(),
            durations: Family::new_with_constructor(ciphers),
            kms_latency: Family::new_with_constructor(plugins),
            key_uses: Family::default(),
            key_last_used: Family::default(),
            key_last_status: Family::default(),
            invalid_key_ids: Family::default(),
            cached_keys: Family::default(),
            reloads: Family::default(),
            last_reload: Family::default(),
        }
    }
}

impl Metrics {
    /// Counts the transformation of a value between its storage key's object and `stored`.
    pub(crate) fn transformed(
        &self,
        direction: Direction,
        key: &[u8],
        stored: Option<&[u8]>,
        took: Duration,
    ) {
        let kind = ("transformation_type", direction.as_str().to_owned());
        let prefix = ("transformer_prefix", stored.map_or_else(|| "unknown".to_owned(), prefix_of));
        let status = if stored.is_some() { "OK" } else { "Unknown" };
        let labels =
            vec![("resource", resource_of(key)), kind.clone(), prefix.clone(), ("status", status.to_owned())];
        self.operations.get_or_create(&labels).inc();
        if stored.is_some() {
            self.durations.get_or_create(&vec![kind, prefix]).observe(took.as_secs_f64());
        }
    }

    /// Counts a call of a plugin.
    pub(crate) fn called(&self, plugin: &str, method: &'static str, status: &str, took: Duration) {
        let labels = vec![
            ("provider_name", plugin.to_owned()),
            ("method_name", method.to_owned()),
            ("grpc_status_code", status.to_owned()),
        ];
        self.kms_latency.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts the use of a plugin's key.
    pub(crate) fn key_used(&self, direction: Direction, plugin: &str, key_id_hash: &str) {
        let labels = vec![
            ("transformation_type", direction.as_str().to_owned()),
            ("provider_name", plugin.to_owned()),
            ("key_id_hash", key_id_hash.to_owned()),
        ];
        self.key_uses.get_or_create(&labels).inc();
        self.key_last_used.get_or_create(&labels).set(now());
    }

    /// Notes the key that a plugin's status names.
    pub(crate) fn key_reported(&self, plugin: &str, key_id_hash: &str) {
        let labels = vec![("provider_name", plugin.to_owned()), ("key_id_hash", key_id_hash.to_owned())];
        self.key_last_status.get_or_create(&labels).set(now());
    }

    /// Counts an invalid key id in a plugin's status.
    pub(crate) fn key_id_invalid(&self, plugin: &str, error: &str) {
        let labels = vec![("provider_name", plugin.to_owned()), ("error", error.to_owned())];
        self.invalid_key_ids.get_or_create(&labels).inc();
    }

    /// Sets the number of a plugin's keys in memory.
    pub(crate) fn set_cached_keys(&self, plugin: &str, keys: usize) {
        let keys = i64::try_from(keys).unwrap_or(i64::MAX);
        self.cached_keys.get_or_create(&vec![("provider_name", plugin.to_owned())]).set(keys);
    }

    /// Counts a reload of the configuration.
    pub(crate) fn reloaded(&self, succeeded: bool) {
        let labels = vec![("status", if succeeded { "success" } else { "failure" }.to_owned())];
        self.reloads.get_or_create(&labels).inc();
        self.last_reload.get_or_create(&labels).set(now());
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_storage_transformation_operations",
            "Transformations of values, by resource, direction, provider and status",
            self.operations.clone(),
        );
        registry.register(
            "apiserver_storage_transformation_duration_seconds",
            "Time of transformations of values",
            self.durations.clone(),
        );
        let envelope = registry.sub_registry_with_prefix("apiserver_envelope_encryption");
        envelope.register(
            "kms_operations_latency_seconds",
            "Time of calls of KMS plugins",
            self.kms_latency.clone(),
        );
        envelope.register("key_id_hash", "Uses of a KMS plugin's key", self.key_uses.clone());
        envelope.register(
            "key_id_hash_last_timestamp_seconds",
            "Time of the last use of a KMS plugin's key",
            self.key_last_used.clone(),
        );
        envelope.register(
            "key_id_hash_status_last_timestamp_seconds",
            "Time at which a KMS plugin's status last named a key",
            self.key_last_status.clone(),
        );
        envelope.register(
            "invalid_key_id_from_status",
            "Statuses of KMS plugins with an invalid key id",
            self.invalid_key_ids.clone(),
        );
        envelope.register(
            "dek_source_cache_size",
            "Keys of a KMS plugin in memory",
            self.cached_keys.clone(),
        );
        let reloads = registry.sub_registry_with_prefix("apiserver_encryption_config_controller");
        reloads.register("automatic_reloads", "Reloads of the configuration", self.reloads.clone());
        reloads.register(
            "automatic_reload_last_timestamp_seconds",
            "Time of the last reload of the configuration",
            self.last_reload.clone(),
        );
    }
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Returns the resource of a storage key, such as `deployments.apps`.
fn resource_of(key: &[u8]) -> String {
    let key = String::from_utf8_lossy(key);
    let mut parts = key.split('/').filter(|part| !part.is_empty());
    match (parts.next(), parts.next(), parts.next()) {
        (Some("registry"), Some("core"), Some(resource)) => resource.to_owned(),
        (Some("registry"), Some(group), Some(resource)) => format!("{resource}.{group}"),
        _ => String::new(),
    }
}

/// Returns the provider's prefix of a stored value: `k8s:enc:aesgcm:v1:`, with the plugin's name for KMS; empty for a
/// value in clear.
fn prefix_of(stored: &[u8]) -> String {
    let fields = if stored.starts_with(b"k8s:enc:kms:") { 5 } else { 4 };
    if !stored.starts_with(crate::provider::ENCRYPTED) {
        return String::new();
    }
    let ends = stored.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(index, _)| index + 1);
    let end = ends.take(fields).last().unwrap_or_default();
    String::from_utf8_lossy(stored.get(..end).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_of_resource_and_provider() {
        assert_eq!(resource_of(b"/registry/core/secrets/default/a"), "secrets");
        assert_eq!(resource_of(b"/registry/apps/deployments/default/a"), "deployments.apps");
        assert_eq!(resource_of(b"/orlop/x"), "");
        assert_eq!(prefix_of(b"k8s:enc:aesgcm:v1:key1:\xff:\xfe"), "k8s:enc:aesgcm:v1:");
        assert_eq!(prefix_of(b"k8s:enc:kms:v2:vault:\xff"), "k8s:enc:kms:v2:vault:");
        assert_eq!(prefix_of(b"{\"kind\":1}"), "");
    }
}
