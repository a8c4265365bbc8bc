//! The reconciler of ACK's kinds: read, compare, create, update, delete.
//!
//! A pass reads the object from the API server and the resource from AWS, brings the second in line with the first, and
//! writes status once, and only if it differs. The finalizer is written before the first create and goes only when AWS
//! says that the resource is gone, so that a controller killed at any point finds its resource again.

mod adoption;
mod annotations;
mod pass;
mod tags;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::ObjectReference;
use orlop_controllers::runtime::{Action, Recorder};
use serde_json::{Value, json};

use self::annotations::Annotations;
use self::pass::Pass;
use crate::{
    accounts::Accounts,
    client::{Class, Failure},
    cluster::{Resource, merge_patch, text},
    conditions::{
        ADVISORY, Conditions, READY, RECOVERABLE, REFERENCES_RESOLVED, ROLE_SELECTED, SYNCED, TERMINAL,
    },
    kind::Kind,
    references::{Target, Unresolved, resource_of},
};

/// Namespaces of the cluster itself, whose objects are left alone.
const IGNORED_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];
/// Failures in a row before a transient one is reported.
const REPORT_AFTER: u32 = 3;
/// Wait after a failure that another change may help with.
const RECOVERABLE_RETRY: Duration = Duration::from_secs(30);

/// An object to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectKey {
    pub(crate) service: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Notes about objects between passes. What is lost with the process costs a pass, nothing more.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    failures: Mutex<HashMap<ObjectKey, u32>>,
    /// Objects that refer to a target.
    dependents: Mutex<HashMap<Target, HashSet<ObjectKey>>>,
}

impl Memory {
    fn fail(&self, key: &ObjectKey) -> u32 {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let count = failures.entry(key.clone()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    fn succeed(&self, key: &ObjectKey) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    fn depend(&self, key: &ObjectKey, targets: &[Target]) {
        let mut dependents = self.dependents.lock().unwrap_or_else(PoisonError::into_inner);
        for target in targets {
            dependents.entry(target.clone()).or_default().insert(key.clone());
        }
    }

    fn forget(&self, key: &ObjectKey) {
        self.succeed(key);
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

/// Reconciles objects of every kind.
#[derive(Debug)]
pub(crate) struct Reconciler {
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) memory: Memory,
}

/// End of a pass: new status fields, conditions, and the next look.
struct End {
    status: Value,
    conditions: Conditions,
    action: Action,
    /// Nothing is written: the failure may be over before anybody needs to know.
    silent: bool,
}

impl Reconciler {
    /// Reconciles an object once.
    pub(crate) async fn reconcile(
        &self,
        kind: &'static dyn Kind,
        key: &ObjectKey,
    ) -> orlop_client::Result<Action> {
        let about = kind.about();
        let cluster = &self.accounts.cluster;
        let resource = resource_of(about.service.name, about.kind);
        let Some(object) = cluster.get(&resource, &key.namespace, &key.name).await? else {
            self.memory.forget(key);
            return Ok(Action::Done);
        };
        if IGNORED_NAMESPACES.contains(&key.namespace.as_str()) {
            return Ok(Action::Done);
        }
        self.accounts.learn_namespace(&key.namespace).await?;
        let annotations = Annotations::of(&object);
        let deleting = text(&object, "/metadata/deletionTimestamp").is_some();
        let finalizer = about.finalizer();
        let managed = has_finalizer(&object, &finalizer);
        if deleting && !managed {
            self.memory.forget(key);
            return Ok(Action::Done);
        }
        if deleting
            && (annotations.read_only || self.retains(about.service.name, &annotations, &key.namespace))
        {
            self.remove_finalizer(&resource, &object, &finalizer).await?;
            return Ok(Action::Done);
        }
        let mut pass = Pass::new(self, kind, key, &resource, object.clone(), annotations);
        let ended = if deleting { pass.delete().await } else { pass.run().await };
        let resolved = std::mem::take(&mut pass.resolved);
        self.memory.depend(key, &resolved.targets);
        let selector = pass.selector.take();
        let (latest, status) = (pass.object.take(), pass.status.take());
        let mut end = match ended {
            Ok(None) => {
                self.memory.forget(key);
                return Ok(Action::Done);
            }
            Ok(Some(end)) => {
                self.memory.succeed(key);
                end
            }
            Err(Stop::Unresolved(unresolved)) => self.unresolved(key, unresolved, status),
            Err(Stop::Failed(failure)) => self.failed(kind, key, &latest, deleting, &failure, status),
        };
        if end.silent {
            return Ok(end.action);
        }
        if resolved.any && end.conditions.status(REFERENCES_RESOLVED).is_none() {
            end.conditions.set(REFERENCES_RESOLVED, "True", "", "");
        }
        if resolved.crosses {
            end.conditions.set(
                ADVISORY,
                "True",
                "CrossNamespaceOptInRequired",
                "a reference leads to another namespace, which may need an opt-in in a later version",
            );
        }
        if let Some(selector) = selector {
            end.conditions.set(ROLE_SELECTED, "True", "Selected", &selector);
        }
        self.write_status(&resource, key, &latest, end.status, end.conditions).await?;
        Ok(end.action)
    }

    /// Writes status if it differs from what the object has.
    async fn write_status(
        &self,
        resource: &Resource,
        key: &ObjectKey,
        object: &Value,
        mut status: Value,
        mut conditions: Conditions,
    ) -> orlop_client::Result<()> {
        set_ready(&mut conditions);
        let old = object.get("status").cloned().unwrap_or_else(|| json!({}));
        status["conditions"] = conditions.finish(&old["conditions"], None);
        let Some(patch) = merge_patch(&old, &status) else { return Ok(()) };
        let cluster = &self.accounts.cluster;
        match cluster.merge_status(resource, (&key.namespace, &key.name), &json!({"status": patch})).await {
            // The object went in the meantime.
            Err(orlop_client::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other,
        }
    }

    fn unresolved(&self, key: &ObjectKey, unresolved: Unresolved, status: Value) -> End {
        let mut conditions = Conditions::default();
        let failed = "Reference resolution failed";
        let (state, text, action) = match unresolved {
            // A change of the target wakes this object; the time is for what no watch sees.
            Unresolved::Later(text) => ("Unknown", text, Action::After(self.wait(RECOVERABLE_RETRY))),
            Unresolved::Refused(text) => ("False", text, Action::After(self.wait(RECOVERABLE_RETRY))),
            Unresolved::Invalid(text) => {
                conditions.set(TERMINAL, "True", "", &text);
                ("False", text, Action::Done)
            }
            Unresolved::Failed(failure) => {
                let failures = self.memory.fail(key);
                let action = Action::After(self.accounts.settings.backoff(failures - 1));
                ("Unknown", failure.to_string(), action)
            }
        };
        conditions.set(REFERENCES_RESOLVED, state, &text, failed);
        conditions.set(READY, "False", "ReferenceNotReady", &text);
        End { status, conditions, action, silent: false }
    }

    /// Turns a failure into conditions, an event and the next try.
    fn failed(
        &self,
        kind: &'static dyn Kind,
        key: &ObjectKey,
        object: &Value,
        deleting: bool,
        failure: &Failure,
        status: Value,
    ) -> End {
        let mut conditions = Conditions::default();
        let message = failure.to_string();
        let settings = &self.accounts.settings;
        let class = failure.class(kind.about().terminal);
        let mut silent = false;
        let action = match class {
            Class::Wait(after) => {
                conditions.set(SYNCED, "False", "", &message);
                return End { status, conditions, action: Action::After(settings.wait(after)), silent };
            }
            Class::Terminal => {
                self.memory.succeed(key);
                self.event(object, true, "Failed", &message);
                let (text, reason) = match message.as_str() {
                    EXISTS => (EXISTS, UNMANAGED),
                    other => (other, ""),
                };
                conditions.set(TERMINAL, "True", reason, text);
                conditions.set(SYNCED, "False", "", "Resource not synced");
                // While it is deleted a look at AWS now and then may show that it has gone.
                if deleting { Action::After(settings.wait(Duration::from_secs(300))) } else { Action::Done }
            }
            Class::Recoverable | Class::Transient => {
                let failures = self.memory.fail(key);
                let transient = class == Class::Transient;
                if failure.is_throttled() {
                    self.event(object, true, "Throttled", &message);
                } else if !transient || failures >= REPORT_AFTER {
                    self.event(object, true, "Failed", &message);
                }
                silent = transient
                    && failures < REPORT_AFTER
                    && !deleting
                    && object.pointer("/status/conditions").is_some();
                conditions.set(RECOVERABLE, "True", "", &message);
                conditions.set(SYNCED, "Unknown", &failure.long(), UNDETERMINED);
                let backoff = settings.backoff(failures - 1);
                let wait = match transient {
                    true => backoff.max(failure.retry_after().unwrap_or_default()),
                    false => {
                        self.wait(RECOVERABLE_RETRY).max(if failures > 3 { backoff } else { Duration::ZERO })
                    }
                };
                Action::After(wait)
            }
        };
        if deleting {
            let reason = match failure {
                failure if failure.is_denied() => "DeletionDenied",
                failure if failure.is_unreachable() => "AWSUnreachable",
                _ => "DeletionFailed",
            };
            conditions.set(READY, "False", reason, &message);
        }
        End { status, conditions, action, silent }
    }

    fn wait(&self, time: Duration) -> Duration {
        self.accounts.settings.wait(time)
    }

    /// Object, then namespace by service, then namespace, then flag.
    fn retains(&self, service: &str, annotations: &Annotations, namespace: &str) -> bool {
        let of_namespace = |key: &str| self.accounts.namespaces.annotation(namespace, key);
        let policy = annotations
            .deletion_policy
            .clone()
            .or_else(|| of_namespace(&format!("{service}.services.k8s.aws/deletion-policy")))
            .or_else(|| of_namespace("services.k8s.aws/deletion-policy"));
        policy.map_or(self.accounts.settings.retain, |policy| policy == "retain")
    }

    async fn remove_finalizer(
        &self,
        resource: &Resource,
        object: &Value,
        finalizer: &str,
    ) -> orlop_client::Result<()> {
        let left: Vec<&Value> = finalizers(object).filter(|known| *known != finalizer).collect();
        let version = text(object, "/metadata/resourceVersion");
        let patch = json!({"metadata": {"finalizers": left, "resourceVersion": version}});
        let at = (
            text(object, "/metadata/namespace").unwrap_or_default(),
            text(object, "/metadata/name").unwrap_or_default(),
        );
        match self.accounts.cluster.merge(resource, at, &patch).await {
            Err(orlop_client::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop),
        }
    }

    fn event(&self, object: &Value, warning: bool, reason: &'static str, message: &str) {
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

/// Reason to stop a pass.
enum Stop {
    Unresolved(Unresolved),
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<orlop_client::Error> for Stop {
    fn from(error: orlop_client::Error) -> Self {
        Self::Failed(error.into())
    }
}

/// Message and reason for a resource that is not ours.
const EXISTS: &str = "Resource already exists";
const UNMANAGED: &str = "This resource already exists but is not managed by ACK. To bring the resource under ACK \
    management, set the services.k8s.aws/adoption-policy annotation to \"adopt\" or \"adopt-or-create\" and name it in \
    services.k8s.aws/adoption-fields";
const UNDETERMINED: &str = "Unable to determine if desired resource state matches latest observed state";

/// Derives Ready from the other conditions, unless something more exact is set.
fn set_ready(conditions: &mut Conditions) {
    if conditions.status(READY).is_some() {
        return;
    }
    let (status, reason) = if conditions.status(TERMINAL) == Some("True") {
        ("False", TERMINAL)
    } else if conditions.status(RECOVERABLE) == Some("True") {
        ("False", RECOVERABLE)
    } else {
        (conditions.status(SYNCED).unwrap_or("Unknown"), "")
    };
    let status = status.to_owned();
    conditions.set(READY, &status, reason, "");
}

fn finalizers(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten()
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    finalizers(object).any(|known| known == finalizer)
}
