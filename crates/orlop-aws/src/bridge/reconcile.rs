//! The reconciler of the Bridge's kinds: runs phases, writes status once a pass.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use orlop_controllers::runtime::Action;
use serde_json::{Value, json};

use super::{
    kind::{BridgeKind, CREATED, DELETING, Phase, READY, rank},
    metrics::BridgeMetrics,
    step::{Cleaned, Step},
    work::Work,
};
use crate::{
    accounts::Accounts,
    client::{Class, Failure, Session},
    cluster::{Resource, text},
    conditions::{Conditions, after},
    objects::{
        IGNORED_NAMESPACES, ObjectKey, Objects, REPORT_AFTER, ReconcileState, deleted_for, has_finalizer,
        place,
    },
};

/// Period of the drift check of a ready object.
const DRIFT_CHECK: Duration = Duration::from_secs(300);
/// Waits after something is missing, and after something that only a person can help with.
const MISSING_RETRY: Duration = Duration::from_secs(30);
const REFUSED_RETRY: Duration = Duration::from_secs(300);
/// Tries of a clean-up that AWS denies before what is left is let go.
const DENIED_TRIES: u32 = 3;

const READY_CONDITION: &str = "Ready";
const DEGRADED: &str = "Degraded";

/// Reconciles objects of the Bridge.
#[derive(Debug)]
pub(crate) struct Bridge {
    pub(crate) accounts: Arc<Accounts>,
    pub(crate) objects: Objects,
    pub(crate) state: Arc<ReconcileState>,
    pub(crate) metrics: BridgeMetrics,
}

/// Outcome of a pass.
enum Ended {
    /// Status is written, if it differs.
    Written(End),
    /// Nothing is written: the failure may be transient.
    Silent(Duration),
    /// Nothing is left of a deleted object.
    Cleaned,
}

/// Status that a pass writes, and the next pass.
struct End {
    /// `status.phase`.
    state: String,
    conditions: Conditions,
    action: Action,
    outcome: &'static str,
    /// Shown as `status.nextRetryTime`.
    retry: Option<Duration>,
}

/// Outcome of running phases, as conditions show it.
enum Progress {
    Ready,
    /// Nothing is wrong; the next pass comes after a time.
    Moving {
        after: Duration,
        reason: &'static str,
        message: String,
    },
    Missing {
        reason: &'static str,
        message: String,
    },
    Refused {
        reason: &'static str,
        message: String,
    },
}

impl Bridge {
    /// Reconciles an object once.
    pub(crate) async fn reconcile(
        &self,
        kind: &'static dyn BridgeKind,
        key: &ObjectKey,
    ) -> orlop_client::Result<Action> {
        let started = Instant::now();
        let ended = self.pass(kind, key).await;
        let outcome = ended.as_ref().map_or("error", |(_, outcome)| outcome);
        self.metrics.observe(kind.descriptor().kind, outcome, started.elapsed());
        ended.map(|(action, _)| action)
    }

    async fn pass(
        &self,
        kind: &'static dyn BridgeKind,
        key: &ObjectKey,
    ) -> orlop_client::Result<(Action, &'static str)> {
        let (descriptor, settings) = (kind.descriptor(), &self.accounts.settings);
        let resource = descriptor.resource(&settings.bridge_group);
        let found = self.accounts.cluster.get(&resource, &key.namespace, &key.name).await?;
        let Some(mut object) = found.filter(|_| !IGNORED_NAMESPACES.contains(&key.namespace.as_str())) else {
            self.state.remove(key);
            return Ok((Action::Done, "gone"));
        };
        self.accounts.load_namespace(&key.namespace).await?;
        let finalizer = descriptor.finalizer(&settings.bridge_group);
        let deleting = text(&object, "/metadata/deletionTimestamp").is_some();
        let managed = has_finalizer(&object, &finalizer);
        if deleting && !managed {
            self.state.remove(key);
            return Ok((Action::Done, "gone"));
        }
        if deleting && self.accounts.retains(super::SERVICE, &object) {
            self.objects.remove_finalizer(&resource, &object, &finalizer).await?;
            return Ok((Action::Done, "deleted"));
        }
        if !managed {
            // Before the first call of AWS.
            object = self.objects.add_finalizer(&resource, &object, &finalizer).await?;
        }
        let mut status = object.get("status").cloned().unwrap_or_else(|| json!({}));
        if let Some(fields) = status.as_object_mut() {
            fields.retain(|name, _| !["conditions", "nextRetryTime"].contains(&name.as_str()));
        }
        let session =
            self.accounts.session(&object, super::SERVICE, &settings.bridge_group, descriptor.kind).await;
        let observed = object.pointer("/status/observedGeneration");
        let is_ready = status["ready"] == true && observed == object.pointer("/metadata/generation");
        let priority = self.state.priority(key, &object, is_ready);
        let session = session.map(|chosen| chosen.session.for_bridge().with_priority(priority));
        let ended = match (session, deleting) {
            (Ok(session), false) => self.run(kind, key, &session, &object, &mut status).await,
            (Ok(session), true) => self.clean(kind, key, &session, &object, &mut status).await,
            (Err(failure), false) => {
                self.failed(&kind.phases(), key, &object, 0, Conditions::default(), &failure)
            }
            (Err(failure), true) => self.not_cleaned(kind, key, &object, vec![(descriptor.kind, failure)]),
        };
        match ended {
            Ended::Written(end) => {
                self.write(&resource, &object, status, &end).await?;
                Ok((end.action, end.outcome))
            }
            Ended::Silent(wait) => Ok((Action::After(wait), "error")),
            Ended::Cleaned => {
                self.objects.remove_finalizer(&resource, &object, &finalizer).await?;
                self.state.remove(key);
                Ok((Action::Done, "deleted"))
            }
        }
    }

    async fn write(
        &self,
        resource: &Resource,
        object: &Value,
        mut status: Value,
        end: &End,
    ) -> orlop_client::Result<()> {
        let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
        let old = object.pointer("/status/conditions").unwrap_or(&Value::Null);
        status["conditions"] = end.conditions.clone().finish(old, generation);
        status["ready"] = json!(end.conditions.status(READY_CONDITION) == Some("True"));
        status["phase"] = json!(end.state);
        status["observedGeneration"] = json!(generation);
        if let Some(wait) = end.retry {
            status["nextRetryTime"] = json!(after(wait));
        }
        if let Some(fields) = status.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        self.objects.write_status(resource, object, &status).await
    }

    /// Runs the phases, up to the first that does not hold.
    ///
    /// The state moves forward by one a pass, so that each can be seen; a later phase does not run before the state has
    /// come to it. It moves back by any number.
    async fn run(
        &self,
        kind: &'static dyn BridgeKind,
        key: &ObjectKey,
        session: &Session,
        object: &Value,
        status: &mut Value,
    ) -> Ended {
        let phases = kind.phases();
        let mut conditions = Conditions::default();
        let recorded = status["phase"].as_str().and_then(|state| rank(&phases, state));
        let Some(recorded) = recorded else {
            let message = "the first phase is about to start".to_owned();
            let progress = Progress::Moving { after: Duration::ZERO, reason: "InProgress", message };
            return Ended::Written(self.end(key, object, &phases, 0, CREATED, conditions, progress));
        };
        if let Err(message) = kind.validate(&object["spec"]) {
            let progress = Progress::Refused { reason: "Error", message };
            let state = phases[0].working;
            return Ended::Written(self.end(key, object, &phases, 0, state, conditions, progress));
        }
        let mut work = Work {
            aws: session,
            cluster: &self.accounts.cluster,
            object,
            status: status.clone(),
            owner: self.owner(object),
            targets: Vec::new(),
        };
        let mut state = READY;
        let mut progress = Progress::Ready;
        let mut at = phases.len();
        for (number, phase) in phases.iter().enumerate() {
            let (working, done) = (2 * number + 1, 2 * number + 2);
            let step = match kind.run(number, &mut work).await {
                Ok(step) => step,
                Err(failure) => {
                    self.state.track_targets(key, &work.targets);
                    *status = work.status;
                    return self.failed(&phases, key, object, number, conditions, &failure);
                }
            };
            let moving = |message: &str| Progress::Moving {
                after: Duration::ZERO,
                reason: "InProgress",
                message: message.to_owned(),
            };
            let (next, ends) = match step {
                Step::Done { reason, message } => {
                    conditions.set(phase.condition, "True", reason, &message);
                    if recorded < working {
                        (phase.working, Some(moving(&message)))
                    } else if recorded < done {
                        let last = number + 1 == phases.len();
                        (phase.done, (!last).then(|| moving(&message)))
                    } else {
                        continue;
                    }
                }
                Step::Wait { after, reason, message, pending } => {
                    conditions.set(phase.condition, "False", reason, &message);
                    let next = phase.pending.filter(|_| pending).unwrap_or(phase.working);
                    match recorded < working && next != phase.working {
                        true => {
                            (phase.working, Some(Progress::Moving { after: Duration::ZERO, reason, message }))
                        }
                        false => (next, Some(Progress::Moving { after, reason, message })),
                    }
                }
                Step::Missing { reason, message } => {
                    conditions.set(phase.condition, "False", reason, &message);
                    (phase.working, Some(Progress::Missing { reason, message }))
                }
                Step::Refused { reason, message } => {
                    conditions.set(phase.condition, "False", reason, &message);
                    (phase.working, Some(Progress::Refused { reason, message }))
                }
            };
            state = next;
            if let Some(ends) = ends {
                (progress, at) = (ends, number);
                break;
            }
        }
        self.state.track_targets(key, &work.targets);
        *status = work.status;
        Ended::Written(self.end(key, object, &phases, at, state, conditions, progress))
    }

    /// Value of the tag of what was made for an object.
    fn owner(&self, object: &Value) -> String {
        let (namespace, name) = place(object);
        match self.accounts.settings.cluster_name.as_str() {
            "" => format!("{namespace}/{name}"),
            cluster => format!("{cluster}/{namespace}/{name}"),
        }
    }

    /// Completes the conditions of a pass.
    #[expect(clippy::too_many_arguments, reason = "the parts of a pass' end")]
    fn end(
        &self,
        key: &ObjectKey,
        object: &Value,
        phases: &[Phase],
        at: usize,
        state: &'static str,
        mut conditions: Conditions,
        progress: Progress,
    ) -> End {
        let settings = &self.accounts.settings;
        // Phases that were not come to.
        for phase in phases.iter().skip(at) {
            if conditions.status(phase.condition).is_none() {
                let message = match phases.get(at) {
                    Some(first) if first.condition != phase.condition => {
                        format!("Waiting for {}", first.condition)
                    }
                    _ => "Not started".to_owned(),
                };
                conditions.set(phase.condition, "Unknown", "InProgress", &message);
            }
        }
        let (degraded, ready, reason, message, wait, retry) = match progress {
            Progress::Ready => {
                self.state.reset_failures(key);
                if text(object, "/status/phase") != Some(READY) {
                    self.objects.event(object, false, "Ready", "All resources ready");
                }
                // Objects that were made together do not come back together.
                let after = DRIFT_CHECK.mul_f64(0.95 + 0.05 * rand::random::<f64>());
                (false, "True", "Ready", "All resources ready".to_owned(), settings.wait(after), false)
            }
            Progress::Moving { after, reason, message } => {
                self.state.reset_failures(key);
                (false, "False", reason, message, settings.wait(after), false)
            }
            Progress::Missing { reason, message } => {
                let degraded = self.state.record_failure(key) >= REPORT_AFTER;
                (degraded, "False", reason, message, settings.wait(MISSING_RETRY), false)
            }
            Progress::Refused { reason, message } => {
                self.state.reset_failures(key);
                (true, "False", reason, message, settings.wait(REFUSED_RETRY), true)
            }
        };
        if degraded {
            self.objects.event(object, true, "Failed", &message);
        }
        conditions.set(READY_CONDITION, ready, reason, &message);
        set_degraded(&mut conditions, degraded, reason, &message);
        let outcome = match (ready, degraded) {
            ("True", _) => "ready",
            (_, true) => "degraded",
            _ => "waiting",
        };
        let action = Action::After(wait);
        End { state: state.to_owned(), conditions, action, outcome, retry: retry.then_some(wait) }
    }

    /// Turns a failure of a phase into conditions and the next try.
    fn failed(
        &self,
        phases: &[Phase],
        key: &ObjectKey,
        object: &Value,
        number: usize,
        mut conditions: Conditions,
        failure: &Failure,
    ) -> Ended {
        let phase = phases[number];
        let message = match failure {
            Failure::Api(_) => format!("AWS API error: {}", failure.long()),
            other => other.to_string(),
        };
        let class = failure.class(&[]);
        if class == Class::Transient {
            return self.unreachable(key, object, failure, &message);
        }
        let (reason, progress) = match class {
            _ if failure.is_denied() => {
                let reason = "AccessDenied";
                (reason, Progress::Refused { reason, message: message.clone() })
            }
            Class::Wait(after) => {
                let reason = "InProgress";
                (reason, Progress::Moving { after, reason, message: message.clone() })
            }
            Class::Terminal => ("Error", Progress::Refused { reason: "Error", message: message.clone() }),
            _ => ("Error", Progress::Missing { reason: "Error", message: message.clone() }),
        };
        conditions.set(phase.condition, "False", reason, &message);
        Ended::Written(self.end(key, object, phases, number, phase.working, conditions, progress))
    }

    /// Ends a pass in which AWS or the API server did not answer. What was known of the phases stands; after some tries
    /// Degraded reports that it cannot be checked.
    fn unreachable(&self, key: &ObjectKey, object: &Value, failure: &Failure, message: &str) -> Ended {
        let failures = self.state.record_failure(key);
        let wait = self.accounts.settings.backoff(failures - 1);
        let wait = wait.max(failure.retry_after().unwrap_or_default());
        if failure.is_throttled() {
            self.objects.event(object, true, "Throttled", message);
        }
        if failures < REPORT_AFTER {
            return Ended::Silent(wait);
        }
        let mut conditions = Conditions::of(object);
        set_degraded(&mut conditions, true, "Error", message);
        self.objects.event(object, true, "Failed", message);
        let state = text(object, "/status/phase").unwrap_or(CREATED).to_owned();
        let action = Action::After(wait);
        Ended::Written(End { state, conditions, action, outcome: "error", retry: Some(wait) })
    }

    // ---- deletion ----

    /// Runs the clean-up of the phases, the last first.
    async fn clean(
        &self,
        kind: &'static dyn BridgeKind,
        key: &ObjectKey,
        session: &Session,
        object: &Value,
        status: &mut Value,
    ) -> Ended {
        let phases = kind.phases();
        let mut work = Work {
            aws: session,
            cluster: &self.accounts.cluster,
            object,
            status: status.clone(),
            owner: self.owner(object),
            targets: Vec::new(),
        };
        let tried = self.state.failures(key);
        let (mut failures, mut waiting, mut left) = (Vec::new(), None, Vec::new());
        for number in (0..phases.len()).rev() {
            match kind.clean(number, &mut work).await {
                Ok(Cleaned::Gone) => {}
                Ok(Cleaned::Left(text)) => left.push(text),
                Ok(Cleaned::Wait { after, message }) => {
                    waiting = Some((after, message));
                    break;
                }
                Err(failure) => {
                    failures.push((phases[number].condition, failure));
                    // What a step learned is written down before a later one deletes the source of it.
                    if tried == 0 {
                        break;
                    }
                }
            }
        }
        self.state.track_targets(key, &work.targets);
        *status = work.status;
        for text in left {
            self.left_behind(object, &text);
        }
        let Some((after, message)) = waiting else {
            if !failures.is_empty() {
                return self.not_cleaned(kind, key, object, failures);
            }
            self.objects.event(object, false, "Deleted", "All resources deleted");
            return Ended::Cleaned;
        };
        // What failed is tried again, and counted, when nothing is going any more.
        if self.is_overdue(object) {
            self.left_behind(object, &message);
            return Ended::Cleaned;
        }
        let wait = self.accounts.settings.wait(after);
        Ended::Written(self.deleting(object, "InProgress", &message, false, wait))
    }

    /// Ends a pass whose clean-up failed: retries for a bounded time, then removes the finalizer and reports what is left.
    fn not_cleaned(
        &self,
        kind: &'static dyn BridgeKind,
        key: &ObjectKey,
        object: &Value,
        failures: Vec<(&'static str, Failure)>,
    ) -> Ended {
        let tries = self.state.record_failure(key);
        let denied = failures.iter().all(|(_, failure)| failure.is_denied());
        let texts = failures.iter().map(|(what, failure)| format!("{what}: {}", failure.long()));
        let message = texts.collect::<Vec<_>>().join("; ");
        if (denied && tries >= DENIED_TRIES) || self.is_overdue(object) {
            self.left_behind(object, &message);
            return Ended::Cleaned;
        }
        tracing::warn!(
            kind = kind.descriptor().kind,
            namespace = key.namespace,
            name = key.name,
            message,
            "clean-up failed"
        );
        self.objects.event(object, true, "Failed", &message);
        let reason = match failures.first() {
            Some((_, failure)) if failure.is_denied() => "DeletionDenied",
            Some((_, failure)) if failure.is_unreachable() => "AWSUnreachable",
            _ => "DeletionFailed",
        };
        let wait = self.accounts.settings.backoff(tries - 1);
        Ended::Written(self.deleting(object, reason, &message, true, wait))
    }

    fn left_behind(&self, object: &Value, what: &str) {
        let message = format!("left behind in AWS: {what}");
        tracing::warn!(object = ?place(object), message, "clean-up is given up");
        self.objects.event(object, true, "LeftBehind", &message);
    }

    fn deleting(&self, object: &Value, reason: &str, message: &str, degraded: bool, wait: Duration) -> End {
        let mut conditions = Conditions::of(object);
        conditions.set(READY_CONDITION, "False", reason, message);
        set_degraded(&mut conditions, degraded, reason, message);
        let (state, action) = (DELETING.to_owned(), Action::After(wait));
        End { state, conditions, action, outcome: "deleting", retry: degraded.then_some(wait) }
    }

    /// True if a deletion has been tried for long enough.
    fn is_overdue(&self, object: &Value) -> bool {
        let limit = self.accounts.settings.delete_timeout;
        !limit.is_zero() && deleted_for(object).is_some_and(|waited| waited >= limit)
    }
}

fn set_degraded(conditions: &mut Conditions, degraded: bool, reason: &str, message: &str) {
    match degraded {
        true => conditions.set(DEGRADED, "True", reason, message),
        false => conditions.set(DEGRADED, "False", "AsExpected", ""),
    }
}
