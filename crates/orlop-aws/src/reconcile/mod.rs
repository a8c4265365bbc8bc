//! The reconciler of ACK's kinds: read, compare, create, update, delete.
//!
//! A pass reads the object from the API server and the resource from AWS, brings the second in line with the first, and
//! writes status once, and only if it differs. The finalizer is written before the first create and goes only when AWS
//! says that the resource is gone, so that a controller killed at any point finds its resource again.

mod adoption;
mod annotations;
mod export;
mod late_initialize;
mod pass;
mod tags;

use std::{sync::Arc, time::Duration};

use orlop_controllers::runtime::Action;
use serde_json::Value;

use self::annotations::Annotations;
use self::pass::Pass;
use crate::{
    accounts::Accounts,
    client::{Class, Failure},
    cluster::{Resource, text},
    conditions::{
        ADVISORY, Conditions, READY, RECOVERABLE, REFERENCES_RESOLVED, ROLE_SELECTED, SYNCED, TERMINAL,
        is_synced,
    },
    kind::Kind,
    objects::{IGNORED_NAMESPACES, ObjectKey, Objects, REPORT_AFTER, ReconcileState, has_finalizer},
    references::{Unresolved, resource_of},
};

/// Wait after a failure that another change may help with.
const RECOVERABLE_RETRY: Duration = Duration::from_secs(30);

/// Reconciles objects of every kind.
#[derive(Debug)]
pub(crate) struct Reconciler {
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) objects: Objects,
    pub(crate) state: Arc<ReconcileState>,
}

/// Outcome of a pass: new status fields, conditions, and the requeue.
struct End {
    status: Value,
    conditions: Conditions,
    action: Action,
    /// Nothing is written: the failure may be transient.
    silent: bool,
}

impl Reconciler {
    /// Reconciles an object once.
    pub(crate) async fn reconcile(
        &self,
        kind: &'static dyn Kind,
        key: &ObjectKey,
    ) -> orlop_client::Result<Action> {
        let descriptor = kind.descriptor();
        let cluster = &self.accounts.cluster;
        let resource = resource_of(descriptor.service.name, descriptor.kind);
        let Some(object) = cluster.get(&resource, &key.namespace, &key.name).await? else {
            self.state.remove(key);
            return Ok(Action::Done);
        };
        if IGNORED_NAMESPACES.contains(&key.namespace.as_str()) {
            return Ok(Action::Done);
        }
        self.accounts.load_namespace(&key.namespace).await?;
        let annotations = Annotations::of(&object, self.accounts.settings.gates);
        let deleting = text(&object, "/metadata/deletionTimestamp").is_some();
        let finalizer = descriptor.finalizer();
        let managed = has_finalizer(&object, &finalizer);
        if deleting && !managed {
            self.state.remove(key);
            return Ok(Action::Done);
        }
        if deleting && (annotations.read_only || self.accounts.retains(descriptor.service.name, &object)) {
            self.objects.remove_finalizer(&resource, &object, &finalizer).await?;
            return Ok(Action::Done);
        }
        let priority = self.state.priority(key, &object, is_synced(&object));
        let mut pass = Pass::new(self, kind, key, &resource, object.clone(), annotations, priority);
        let ended = if deleting { pass.delete().await } else { pass.run().await };
        let resolved = std::mem::take(&mut pass.resolved);
        self.state.track_targets(key, &resolved.targets);
        let selector = pass.selector.take();
        let (latest, status) = (pass.object.take(), pass.status.take());
        let mut end = match ended {
            Ok(None) => {
                self.state.remove(key);
                return Ok(Action::Done);
            }
            Ok(Some(end)) => {
                self.state.reset_failures(key);
                if end.conditions.status(SYNCED) == Some("True") {
                    self.state.set_synced(key, &latest);
                }
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
        self.write_status(&resource, &latest, end.status, end.conditions).await?;
        Ok(end.action)
    }

    /// Writes status if it differs from what the object has.
    async fn write_status(
        &self,
        resource: &Resource,
        object: &Value,
        mut status: Value,
        mut conditions: Conditions,
    ) -> orlop_client::Result<()> {
        set_ready(&mut conditions);
        let old = object.pointer("/status/conditions").unwrap_or(&Value::Null);
        status["conditions"] = conditions.finish(old, None);
        self.objects.write_status(resource, object, &status).await
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
                let failures = self.state.record_failure(key);
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
        let class = failure.class(kind.descriptor().terminal);
        let mut silent = false;
        let action = match class {
            Class::Wait(after) => {
                match failure {
                    Failure::Role(cause) => {
                        conditions.set(SYNCED, "False", cause, "IAM Role is not available");
                    }
                    _ => conditions.set(SYNCED, "False", "", &message),
                }
                return End { status, conditions, action: Action::After(settings.wait(after)), silent };
            }
            Class::Terminal => {
                self.state.reset_failures(key);
                self.event(object, true, "Failed", &message);
                let (text, reason) = match message.as_str() {
                    EXISTS => (EXISTS, UNMANAGED),
                    other => (other, ""),
                };
                conditions.set(TERMINAL, "True", reason, text);
                conditions.set(SYNCED, "False", "", "Resource not synced");
                // While it is deleted an occasional read of AWS may show that it has gone.
                if deleting { Action::After(settings.wait(Duration::from_secs(300))) } else { Action::Done }
            }
            Class::Recoverable | Class::Transient => {
                let failures = self.state.record_failure(key);
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

    fn event(&self, object: &Value, warning: bool, reason: &'static str, message: &str) {
        self.objects.event(object, warning, reason, message);
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
