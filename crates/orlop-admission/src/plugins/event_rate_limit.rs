//! EventRateLimit: limits the rate at which events are written, by server, namespace, user, or source and object.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use async_trait::async_trait;
use orlop_api::{
    field_error::{FieldError, FieldPath, aggregate},
    status::Status,
};
use orlop_kinds::accessors::{integer, list, text};
use serde_json::Value;

use crate::{Admission, AdmissionRequest, Operation, Phase, Resources};

/// Keys that a limit remembers, if it does not say.
const CACHE_SIZE: usize = 4096;
const KINDS: &[&str] = &["Namespace", "Server", "SourceAndObject", "User"];

/// Limits the rate of events.
#[derive(Debug)]
pub(super) struct EventRateLimit(Vec<Limit>);

/// A limit and its token buckets.
#[derive(Debug)]
struct Limit {
    kind: String,
    per_second: f64,
    burst: f64,
    buckets_max: usize,
    buckets: Mutex<HashMap<String, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl EventRateLimit {
    /// Returns the plugin with an eventratelimit.admission.k8s.io Configuration.
    pub(super) fn new(configuration: &Value) -> Result<Self, String> {
        let path = FieldPath::root("limits");
        let limits = list(configuration, "/limits");
        let mut errors = Vec::new();
        if limits.is_empty() {
            errors.push(FieldError::invalid(&path, Value::Null, "must not be empty"));
        }
        for (index, limit) in limits.iter().enumerate() {
            let path = path.index(index);
            if !KINDS.contains(&text(limit, "/type")) {
                errors.push(FieldError::not_supported(&path.child("type"), text(limit, "/type"), KINDS));
            }
            for field in ["burst", "qps"] {
                let value = integer(limit, &format!("/{field}"));
                if value <= 0 {
                    errors.push(FieldError::invalid(&path.child(field), value, "must be positive"));
                }
            }
            let size = integer(limit, "/cacheSize");
            if size < 0 && text(limit, "/type") != "Server" {
                errors.push(FieldError::invalid(&path.child("cacheSize"), size, "must not be negative"));
            }
        }
        if !errors.is_empty() {
            return Err(aggregate(&errors));
        }
        let limit = |limit: &Value| Limit {
            kind: text(limit, "/type").to_owned(),
            per_second: integer(limit, "/qps") as f64,
            burst: integer(limit, "/burst") as f64,
            buckets_max: match usize::try_from(integer(limit, "/cacheSize")) {
                Ok(0) | Err(_) => CACHE_SIZE,
                Ok(size) => size,
            },
            buckets: Mutex::default(),
        };
        Ok(Self(limits.iter().map(limit).collect()))
    }
}

impl Limit {
    fn key(&self, request: &AdmissionRequest<'_>, event: &Value) -> String {
        match self.kind.as_str() {
            "Namespace" => request.namespace().to_owned(),
            "User" => request.attributes.user.name.clone(),
            "SourceAndObject" => {
                let pointers = [
                    "/source/component",
                    "/source/host",
                    "/involvedObject/kind",
                    "/involvedObject/namespace",
                    "/involvedObject/name",
                    "/involvedObject/uid",
                    "/involvedObject/apiVersion",
                ];
                pointers.iter().map(|pointer| text(event, pointer)).collect()
            }
            _ => String::new(),
        }
    }

    /// Takes a token. Returns false if there is none.
    fn take(&self, key: &str, now: Instant) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= self.buckets_max && !buckets.contains_key(key) {
            // The one that was not used for longest.
            let oldest = buckets.iter().min_by_key(|(_, bucket)| bucket.filled).map(|(key, _)| key.clone());
            oldest.map(|oldest| buckets.remove(&oldest));
        }
        let bucket = buckets.entry(key.to_owned()).or_insert(Bucket { tokens: self.burst, filled: now });
        let passed = now.saturating_duration_since(bucket.filled).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * self.per_second).min(self.burst);
        bucket.filled = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

#[async_trait]
impl Admission for EventRateLimit {
    fn resources(&self) -> Resources {
        Resources::Only(&[("", "events"), ("events.k8s.io", "events")])
    }

    fn handles(&self, phase: Phase, operation: Operation) -> bool {
        phase == Phase::Validating && matches!(operation, Operation::Create | Operation::Update)
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        event: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        // Kubernetes compares the kind of the core group, and a dry run writes nothing.
        if !request.attributes.group.is_empty() || request.dry_run {
            return Ok(());
        }
        let (event, now) = (event.unwrap_or(&Value::Null), Instant::now());
        let errors: Vec<String> = self
            .0
            .iter()
            .filter_map(|limit| {
                let key = limit.key(request, event);
                let refusal = || format!("limit reached on type {} for key {key}", limit.kind);
                (!limit.take(&key, now)).then(refusal)
            })
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(Status::too_many_requests(aggregate(&errors), 0)) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::plugins::testing::{Run, message};

    #[tokio::test]
    async fn burst_is_allowed_and_then_refused() {
        let limits = json!({"limits": [{"type": "Namespace", "qps": 1, "burst": 2}]});
        let plugin = EventRateLimit::new(&limits).unwrap();
        let run = Run::create("", "events");
        for _ in 0..2 {
            assert_eq!(message(run.mutate(&plugin, json!({})).await), "");
        }
        assert_eq!(
            message(run.mutate(&plugin, json!({})).await),
            "limit reached on type Namespace for key ns"
        );
    }

    #[test]
    fn bucket_fills_with_time_and_the_number_of_buckets_is_bounded() {
        let limits = json!({"limits": [{"type": "User", "qps": 10, "burst": 1, "cacheSize": 2}]});
        let EventRateLimit(limits) = EventRateLimit::new(&limits).unwrap();
        let (limit, start) = (&limits[0], Instant::now());
        assert!(limit.take("a", start) && !limit.take("a", start));
        assert!(limit.take("a", start + Duration::from_millis(100)));
        assert!(limit.take("b", start) && limit.take("c", start));
        assert_eq!(limit.buckets.lock().unwrap().len(), 2);
    }

    #[test]
    fn wrong_configurations_are_refused() {
        let error =
            EventRateLimit::new(&json!({"limits": [{"type": "Server", "qps": 0, "burst": 1}]})).unwrap_err();
        assert_eq!(error, "limits[0].qps: Invalid value: 0: must be positive");
        assert!(EventRateLimit::new(&Value::Null).is_err());
    }
}
