//! Objects of the cluster as every reconciler treats them: status, finalizers, events, and state between passes.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::ObjectReference;
use orlop_api::time::Time;
use orlop_controllers::runtime::Recorder;
use serde_json::{Value, json};

use crate::{
    client::Priority,
    cluster::{Cluster, Resource, merge_patch, text},
    conditions::now,
    references::Target,
};

/// Namespaces of the cluster itself, whose objects are left alone.
pub(crate) const IGNORED_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];
/// Failures in a row before a transient one is reported.
pub(crate) const REPORT_AFTER: u32 = 3;

/// An object to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) service: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// State of objects between passes. It is a cache: losing it costs a pass.
#[derive(Debug, Default)]
pub(crate) struct ReconcileState {
    failures: Mutex<HashMap<ObjectKey, u32>>,
    /// Generation of each object as of its last pass that ended synced.
    synced: Mutex<HashMap<ObjectKey, i64>>,
    /// Objects that refer to a target.
    dependents: Mutex<HashMap<Target, HashSet<ObjectKey>>>,
}

impl ReconcileState {
    /// Counts a failed pass. Returns the failures in a row.
    pub(crate) fn record_failure(&self, key: &ObjectKey) -> u32 {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(key.clone()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// Returns the failures in a row.
    pub(crate) fn failures(&self, key: &ObjectKey) -> u32 {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied().unwrap_or_default()
    }

    pub(crate) fn reset_failures(&self, key: &ObjectKey) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// Records that a generation is synced.
    pub(crate) fn set_synced(&self, key: &ObjectKey, object: &Value) {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), generation(object));
    }

    /// Returns the priority of a pass over an object, given that its status is synced. Another generation than the one
    /// that was synced is a change; all others are a resync.
    pub(crate) fn priority(&self, key: &ObjectKey, object: &Value, is_synced: bool) -> Priority {
        let synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied();
        let deleting = text(object, "/metadata/deletionTimestamp").is_some();
        match is_synced && !deleting && synced.is_none_or(|synced| synced == generation(object)) {
            true => Priority::Background,
            false => Priority::Normal,
        }
    }

    pub(crate) fn track_targets(&self, key: &ObjectKey, targets: &[Target]) {
        let mut dependents = self.dependents.lock().unwrap_or_else(PoisonError::into_inner);
        for target in targets {
            dependents.entry(target.clone()).or_default().insert(key.clone());
        }
    }

    pub(crate) fn remove(&self, key: &ObjectKey) {
        self.reset_failures(key);
        self.synced.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        let mut dependents = self.dependents.lock().unwrap_or_else(PoisonError::into_inner);
        dependents.retain(|_, keys| {
            keys.remove(key);
            !keys.is_empty()
        });
    }

    /// Returns the objects that refer to a target.
    pub(crate) fn dependents(&self, target: &Target) -> Vec<ObjectKey> {
        let dependents = self.dependents.lock().unwrap_or_else(PoisonError::into_inner);
        dependents.get(target).into_iter().flatten().cloned().collect()
    }
}

/// Writes what a pass leaves behind on an object.
#[derive(Clone, Debug)]
pub(crate) struct Objects {
    pub(crate) cluster: Cluster,
    pub(crate) recorder: Arc<Recorder>,
}

impl Objects {
    /// Writes status if it differs from what the object has.
    pub(crate) async fn write_status(
        &self,
        resource: &Resource,
        object: &Value,
        status: &Value,
    ) -> orlop_client::Result<()> {
        let old = object.get("status").cloned().unwrap_or_else(|| json!({}));
        let Some(patch) = merge_patch(&old, status) else { return Ok(()) };
        match self.cluster.merge_status(resource, place(object), &json!({"status": patch})).await {
            // The object went in the meantime.
            Err(orlop_client::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other,
        }
    }

    /// Adds a finalizer. Returns the object as it is by then.
    pub(crate) async fn add_finalizer(
        &self,
        resource: &Resource,
        object: &Value,
        finalizer: &str,
    ) -> orlop_client::Result<Value> {
        let mut all: Vec<Value> = finalizers(object).cloned().collect();
        all.push(json!(finalizer));
        self.set_finalizers(resource, object, all).await
    }

    pub(crate) async fn remove_finalizer(
        &self,
        resource: &Resource,
        object: &Value,
        finalizer: &str,
    ) -> orlop_client::Result<()> {
        let left = finalizers(object).filter(|known| *known != finalizer).cloned().collect();
        match self.set_finalizers(resource, object, left).await {
            Err(orlop_client::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        }
    }

    async fn set_finalizers(
        &self,
        resource: &Resource,
        object: &Value,
        all: Vec<Value>,
    ) -> orlop_client::Result<Value> {
        let version = text(object, "/metadata/resourceVersion");
        let patch = json!({"metadata": {"finalizers": all, "resourceVersion": version}});
        self.cluster.merge(resource, place(object), &patch).await
    }

    pub(crate) fn event(&self, object: &Value, warning: bool, reason: &'static str, message: &str) {
        let field = |pointer: &str| text(object, pointer).map(str::to_owned);
        let reference = ObjectReference {
            api_version: field("/apiVersion"),
            kind: field("/kind"),
            name: field("/metadata/name"),
            namespace: field("/metadata/namespace"),
            uid: field("/metadata/uid"),
            ..ObjectReference::default()
        };
        self.recorder.record(reference, warning, reason, "", message.to_owned());
    }
}

/// Returns the time since the deletion of an object was asked for.
pub(crate) fn deleted_for(object: &Value) -> Option<Duration> {
    let since = text(object, "/metadata/deletionTimestamp").and_then(Time::parse)?;
    let waited = Time::parse(&now())?.seconds_since(since);
    Some(Duration::from_secs(u64::try_from(waited).unwrap_or_default()))
}

fn generation(object: &Value) -> i64 {
    object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
}

/// Returns namespace and name of an object.
pub(crate) fn place(object: &Value) -> (&str, &str) {
    let field = |pointer: &str| text(object, pointer).unwrap_or_default();
    (field("/metadata/namespace"), field("/metadata/name"))
}

pub(crate) fn finalizers(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten()
}

pub(crate) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    finalizers(object).any(|known| known == finalizer)
}
