//! The status of an instance: conditions, state, objects, and what they wait for.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use orlop_api::time::Time;
use serde_json::{Value as Json, json};

use super::pass::{NodeState, Pass};
use super::reconciliation::Reconciliation;
use super::{Controller, after, now};
use crate::cluster::{Resource, Result, code};
use crate::conditions::Status;
use crate::expression::Failure;
use crate::metrics::{Age, Count};

pub(super) const MANAGED: &str = "InstanceManaged";
pub(super) const RESOLVED: &str = "GraphResolved";
pub(super) const RESOURCES: &str = "ResourcesReady";
pub(super) const DEPENDENTS: &[&str] = &[MANAGED, RESOLVED, RESOURCES];

/// Objects listed in an instance's status, at most.
const LISTED_MAX: usize = 200;

impl Reconciliation<'_> {
    /// Writes the outcome of a pass; `retry` is the time until the next one, if no event starts it.
    pub(super) async fn report(
        &mut self,
        pass: &Pass,
        schema: &Json,
        pruning: Option<&str>,
        retry: Option<Duration>,
    ) -> Result<()> {
        let mut errors: Vec<&str> = Vec::new();
        let (mut deleting, mut waiting, mut unready, mut faulty) = (None, None, None, None);
        for (state, observed) in pass.states.iter().zip(&pass.observed) {
            match state {
                NodeState::Failed(text, _) => errors.push(text),
                NodeState::Deleting(text, _) => deleting = deleting.or(Some(text)),
                NodeState::Waiting(text) => waiting = waiting.or(Some(text)),
                NodeState::NotReady(text) => {
                    unready = unready.or_else(|| Some(text.clone()));
                    faulty = faulty.or_else(|| Some(format!("{text}; {}", fault_of(observed.as_ref()?)?)));
                }
                _ => {}
            }
        }
        // A node that fails is told before one that takes its time.
        let unready = faulty.or(unready);
        let (mut fields, failures) = self.graph.status.fill(&pass.scope(schema));
        let mut set = |reason: &str, text: &str| self.conditions.set(RESOURCES, Status::False, reason, text);
        let failed = !errors.is_empty() || !failures.is_empty() || pruning.is_some();
        if failed {
            let all: Vec<&str> =
                errors.iter().copied().chain(failures.iter().map(String::as_str)).chain(pruning).collect();
            let text =
                format!("resource reconciliation failed: apply results contain errors: {}", all.join("; "));
            set("NotReady", &text);
        } else if let Some(text) = deleting {
            set("ResourceDeleting", text);
        } else if let Some(text) = &unready {
            set("NotReady", &format!("awaiting resource readiness: {text}"));
        } else if let Some(text) = waiting {
            set("NotReady", &format!("resource reconciliation failed: {text}"));
        } else {
            let text = "all resources are created and ready";
            self.conditions.set(RESOURCES, Status::True, "AllResourcesReady", text);
        }
        // Waiting nodes name the node they wait for, so both texts matter.
        if let (false, Some(unready), Some(waiting), None) = (failed, &unready, waiting, deleting) {
            let text = format!("awaiting resource readiness: {unready}; {waiting}");
            self.conditions.set(RESOURCES, Status::False, "NotReady", &text);
        }
        let settled = pass.states.iter().all(|state| matches!(state, NodeState::Synced | NodeState::Skipped));
        let mut state = match (failed, settled) {
            (true, _) => "ERROR",
            (false, true) => "ACTIVE",
            (false, false) => "IN_PROGRESS",
        };
        fields.insert("managedResources".to_owned(), self.listed(pass, retry));
        let conditions = self.conditions.clone().finish();
        let custom = self.custom_conditions(pass, schema, &conditions, &mut state);
        fields.insert("conditions".to_owned(), Json::Array(custom.unwrap_or(conditions)));
        fields.insert("state".to_owned(), json!(state));
        self.replace_status(Json::Object(fields)).await
    }

    /// The objects of the graph with their states.
    fn listed(&self, pass: &Pass, retry: Option<Duration>) -> Json {
        let before = self.instance.pointer("/status/managedResources").and_then(Json::as_array);
        let mut listed = Vec::new();
        for ((node, state), observed) in self.graph.nodes.iter().zip(&pass.states).zip(&pass.observed) {
            let objects: Vec<&Json> = match observed {
                Some(Json::Array(items)) => items.iter().collect(),
                Some(object) => vec![object],
                None => Vec::new(),
            };
            let mut entry = json!({
                "id": node.id, "state": state.as_str(), "apiVersion": node.kind.gvk.api_version(),
                "kind": node.kind.gvk.kind});
            if let Some(reason) = state.reason() {
                let fault = observed.as_ref().filter(|_| matches!(state, NodeState::NotReady(_)));
                entry["message"] = match fault.and_then(fault_of) {
                    Some(fault) => json!(format!("{reason}; {fault}")),
                    None => json!(reason),
                };
                if let (Some(retry), true) = (retry, state.is_retried()) {
                    entry["nextRetryTime"] = json!(after(retry));
                }
            }
            // An object that is not there yet has a name all the same.
            let wanted = pass.wanted(&node.id);
            if objects.is_empty() && !wanted.is_empty() {
                for (namespace, name) in wanted {
                    let mut entry = entry.clone();
                    entry["name"] = json!(name);
                    if let Some(namespace) = namespace {
                        entry["namespace"] = json!(namespace);
                    }
                    listed.push(entry);
                }
                continue;
            }
            if objects.is_empty() {
                listed.push(entry);
                continue;
            }
            for object in objects {
                let mut entry = entry.clone();
                for field in ["namespace", "name"] {
                    if let Some(value) = object.pointer(&format!("/metadata/{field}")) {
                        entry[field] = value.clone();
                    }
                }
                listed.push(entry);
            }
        }
        listed.truncate(LISTED_MAX);
        // The time of a state stays as long as the state does.
        for entry in listed.iter_mut().filter(|entry| entry.get("message").is_some()) {
            let same = |other: &&Json| {
                ["id", "namespace", "name", "state"].iter().all(|field| other.get(field) == entry.get(field))
            };
            let since = before.into_iter().flatten().find(same).and_then(|other| other.get("since").cloned());
            entry["since"] = since.unwrap_or_else(|| json!(now()));
        }
        Json::Array(listed)
    }

    /// The author's conditions in place of the built-in ones, if the definition declares any.
    fn custom_conditions(
        &self,
        pass: &Pass,
        schema: &Json,
        own: &[Json],
        state: &mut &str,
    ) -> Option<Vec<Json>> {
        let entries = self.graph.status.conditions.as_ref()?;
        let stored = self.instance.pointer("/status/conditions").and_then(Json::as_array);
        let stored = |kind: &str| stored.into_iter().flatten().find(|condition| condition["type"] == kind);
        let generation = self.instance.pointer("/metadata/generation").cloned().unwrap_or_default();
        let mut with_status = schema.clone();
        with_status["status"] = json!({"conditions": own});
        let scope = pass.scope(&with_status);
        let mut found: Vec<Json> = Vec::new();
        for entry in entries {
            match entry.evaluate(&scope) {
                Ok(conditions) => found.extend(conditions),
                Err(Failure::Pending(_)) => {
                    found.extend(entry.types.iter().filter_map(|kind| stored(kind).cloned()));
                }
                Err(Failure::Failed(error)) => {
                    tracing::debug!(error, "a condition could not be evaluated");
                    *state = "ERROR";
                }
            }
        }
        let count = |kind: &Json, all: &[Json]| all.iter().filter(|other| other["type"] == *kind).count();
        let all = found.clone();
        let before = found.len();
        found.retain(|condition| count(&condition["type"], &all) == 1);
        if found.len() < before {
            *state = "ERROR";
        }
        for condition in &mut found {
            let kind = condition["type"].as_str().unwrap_or_default().to_owned();
            let kept = stored(&kind)
                .filter(|stored| stored["status"] == condition["status"])
                .and_then(|stored| stored.get("lastTransitionTime").cloned());
            condition["lastTransitionTime"] = kept.unwrap_or_else(|| json!(now()));
            condition["observedGeneration"] = generation.clone();
        }
        Some(found)
    }

    /// Writes state and conditions, and keeps what the status says otherwise.
    pub(super) async fn write_status(&mut self, state: &str) -> Result<()> {
        let mut status =
            self.instance.get("status").cloned().filter(Json::is_object).unwrap_or_else(|| json!({}));
        status["state"] = json!(state);
        status["conditions"] = Json::Array(self.conditions.clone().finish());
        self.replace_status(status).await
    }

    async fn replace_status(&mut self, status: Json) -> Result<()> {
        self.instance =
            self.controller.replace_instance_status(&self.resource, &self.instance, status).await?;
        Ok(())
    }
}

impl Controller {
    /// Replaces an instance's status if it differs; somebody else's write in between is read again and kept.
    pub(super) async fn replace_instance_status(
        &self,
        resource: &Resource,
        instance: &Json,
        status: Json,
    ) -> Result<Json> {
        const ATTEMPTS: usize = 5;
        let before = instance.get("status").cloned().unwrap_or_default();
        let mut instance = instance.clone();
        for attempt in 1.. {
            if instance.get("status") == Some(&status) {
                break;
            }
            instance["status"] = status.clone();
            match self.cluster.replace_status(resource, &instance).await {
                Ok(written) => {
                    self.observe_transition(resource, &before, &written);
                    return Ok(written);
                }
                Err(error) if code(&error) == Some(404) => break,
                Err(error) if code(&error) == Some(409) && attempt < ATTEMPTS => {
                    let text = |pointer: &str| instance.pointer(pointer).and_then(Json::as_str);
                    let name = text("/metadata/name").unwrap_or_default();
                    match self.cluster.get(resource, text("/metadata/namespace"), name).await? {
                        Some(current) if current["metadata"]["uid"] == instance["metadata"]["uid"] => {
                            instance = current;
                        }
                        _ => break,
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(instance)
    }

    /// Counts a change of state, and records changes of conditions where that is asked for.
    fn observe_transition(&self, resource: &Resource, before: &Json, written: &Json) {
        let gvr = resource.to_string();
        let state = |status: &Json| status.get("state").and_then(Json::as_str).unwrap_or_default().to_owned();
        let (from, to) = (state(before), state(&written["status"]));
        if from != to {
            let labels = [("gvr", gvr.as_str()), ("from_state", &from), ("to_state", &to)];
            self.metrics.count(Count::InstanceTransitions, &labels);
        }
        let conditions =
            |status: &Json| status.get("conditions").and_then(Json::as_array).cloned().unwrap_or_default();
        let text =
            |json: &Json, field: &str| json.get(field).and_then(Json::as_str).unwrap_or_default().to_owned();
        let after = conditions(&written["status"]);
        if self.settings.condition_metrics {
            let ages = after.iter().map(|condition| Age {
                kind: text(condition, "type"),
                status: text(condition, "status"),
                reason: text(condition, "reason"),
                since_s: Time::parse(&text(condition, "lastTransitionTime"))
                    .map_or(0, |time| time.seconds_since(Time::from_unix(0))),
            });
            let place = |field: &str| text(&written["metadata"], field);
            self.metrics.conditions().set((gvr, place("namespace"), place("name")), ages.collect());
        }
        if self.settings.condition_events {
            let earlier = conditions(before);
            for condition in &after {
                let kind = text(condition, "type");
                let old = earlier.iter().find(|other| other["type"] == condition["type"]);
                let old = old.map_or_else(|| "none".to_owned(), |old| text(old, "status"));
                let new = text(condition, "status");
                if old != new {
                    let message = format!("{old} -> {new}: {}", text(condition, "reason"));
                    self.recorder(resource).record(reference(written), new != "True", kind, "", message);
                }
            }
        }
    }
}

/// Types of conditions that are True in a failure, and of those that are False in one, the most telling first.
const FAULTS: [&str; 6] =
    ["ACK.Terminal", "ACK.Recoverable", "Degraded", "Stalled", "Failed", "ReplicaFailure"];
const HEALTH: [&str; 3] = ["Ready", "Available", "Synced"];
/// Characters of a condition's message shown, at most.
const FAULT_MAX: usize = 512;

/// Returns the failure that the conditions of an object, or of the first of a list, report: its controller's words are
/// all that a user of the instance sees of the layers below.
fn fault_of(observed: &Json) -> Option<String> {
    if let Some(items) = observed.as_array() {
        return items.iter().find_map(fault_of);
    }
    let conditions = observed.pointer("/status/conditions")?.as_array()?;
    let find = |types: &[&str], status: &str| {
        types.iter().find_map(|kind| {
            let message = |condition: &&Json| {
                condition["type"] == *kind
                    && condition["status"] == status
                    && condition["message"].as_str().is_some_and(|message| !message.is_empty())
            };
            conditions.iter().find(message)
        })
    };
    let found = find(&FAULTS, "True").or_else(|| find(&HEALTH, "False"))?;
    let text = |field: &str| found[field].as_str().unwrap_or_default();
    let message = text("message");
    let cut = message.char_indices().nth(FAULT_MAX).map(|(end, _)| format!("{}…", &message[..end]));
    let kind = observed["kind"].as_str().unwrap_or_default();
    let name = observed.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default();
    let message = cut.as_deref().unwrap_or(message);
    Some(format!("{kind} {name}: {} is {}: {message}", text("type"), text("status")))
}

/// The reference of an event to an object.
fn reference(object: &Json) -> ObjectReference {
    let text = |pointer: &str| object.pointer(pointer).and_then(Json::as_str).map(str::to_owned);
    ObjectReference {
        api_version: text("/apiVersion"),
        kind: text("/kind"),
        name: text("/metadata/name"),
        namespace: text("/metadata/namespace"),
        uid: text("/metadata/uid"),
        resource_version: text("/metadata/resourceVersion"),
        ..ObjectReference::default()
    }
}

/// Conditions of an author do not count as the controller's own, even under the same names.
pub(super) fn with_own_conditions(instance: &Json) -> Json {
    json!({"metadata": {"generation": instance["metadata"]["generation"]}, "status": {
        "conditions": instance.pointer("/status/conditions").cloned().unwrap_or_default()}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(conditions: Json) -> Json {
        json!({"kind": "Queue", "metadata": {"name": "jobs"}, "status": {"conditions": conditions}})
    }

    #[test]
    fn fault_comes_before_a_missing_readiness_and_is_shown_long() {
        let long = "x".repeat(2 * FAULT_MAX);
        let failing = object(json!([{"type": "Ready", "status": "False", "message": "not yet"},
            {"type": "Degraded", "status": "True", "message": long}]));
        let shown = fault_of(&failing).expect("a fault");
        assert!(shown.starts_with("Queue jobs: Degraded is True: xxx"));
        assert_eq!(shown.chars().filter(|c| *c == 'x').count(), FAULT_MAX);
        let slow = object(json!([{"type": "Ready", "status": "False", "message": "not yet"}]));
        assert_eq!(
            fault_of(&json!([object(json!([])), slow])).as_deref(),
            Some("Queue jobs: Ready is False: not yet")
        );
    }

    #[test]
    fn healthy_and_silent_objects_have_no_fault() {
        let healthy = object(json!([{"type": "Ready", "status": "True", "message": "fine"},
            {"type": "Degraded", "status": "False", "message": "as expected"}]));
        assert_eq!(fault_of(&healthy), None);
        assert_eq!(fault_of(&object(json!([{"type": "Ready", "status": "False"}]))), None);
        assert_eq!(fault_of(&json!({"kind": "ConfigMap"})), None);
    }
}
