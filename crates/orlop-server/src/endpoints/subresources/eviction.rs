//! Eviction: deletes a pod if its PodDisruptionBudget allows it.
//!
//! The disruption controller computes a budget's status; an eviction decrements disruptionsAllowed and records the
//! pod in one write, so that two evictions cannot both take the last disruption.

use http::Response;
use orlop_api::{
    field_error::{FieldError, FieldPath},
    group_version::{GroupKind, GroupResource, GroupVersionKind},
    labels, object_meta,
    status::Status,
};
use serde_json::{Value, json};

use crate::{
    endpoints::{Request, admission, answer, decoder, delete, listing, update},
    http::body::Body,
    object::{is_terminating, now},
    request::{Attributes, Subresource, options::WriteOptions},
};

/// Evictions that the disruption controller has not observed yet.
const UNOBSERVED_MAX: usize = 2000;
/// Attempts to evict a pending pod that is being changed.
const TRIES: usize = 20;
/// Reason of a cause in the details of a refusal.
const CAUSE: &str = "DisruptionBudget";
const VIOLATES: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Evicts a pod.
pub(super) async fn evict(request: &Request) -> Result<Response<Body>, Status> {
    let options = WriteOptions::of(&request.query, "CreateOptions")?;
    let kind = GroupVersionKind::new("policy", "v1", "Eviction");
    let mut eviction = decoder::decode_as(request, &request.body, &kind, options.field_validation)?;
    admission::mutate_virtual(request, &mut eviction).await?;
    let named = object_meta::text(object_meta::of(&eviction), "name");
    if named != request.attributes.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    admission::validate_virtual(request, &eviction).await?;
    let delete_options = eviction.get("deleteOptions").cloned().unwrap_or_else(|| json!({}));
    refuse_unsafe_deletion(request, &delete_options)?;
    let dry_run = options.dry_run || delete_options.get("dryRun").is_some_and(|dry_run| !dry_run.is_null());
    Eviction { request, options: delete_options, dry_run }.run().await?;
    let done = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    answer::object(request, 201, done)
}

/// Refuses to evict a pod that cannot be read.
fn refuse_unsafe_deletion(request: &Request, options: &Value) -> Result<(), Status> {
    const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    if options.get(OPTION) != Some(&json!(true)) {
        return Ok(());
    }
    let detail = "can not be set for pod eviction, try after removing the option";
    let error = FieldError::invalid(&FieldPath::root("deleteOptions").child(OPTION), true, detail);
    Err(Status::invalid(&GroupKind::new("policy", "Eviction"), &request.attributes.name, &[error]))
}

/// An eviction that has been admitted.
struct Eviction<'a> {
    request: &'a Request,
    /// Its DeleteOptions.
    options: Value,
    dry_run: bool,
}

impl Eviction<'_> {
    async fn run(&self) -> Result<(), Status> {
        let mut tries = TRIES;
        loop {
            let pod = self.read_pod().await?;
            if !needs_no_budget(&pod) {
                return self.run_by_budget(&pod).await;
            }
            // One that is pending may be ready by now, and need its budget.
            let is_pending = phase(&pod) == "Pending" && !is_terminating(&pod);
            if !is_pending || self.has_resource_version() {
                return self.delete(&self.options).await;
            }
            tries -= 1;
            match self.delete(&self.options_for(&pod)).await {
                Err(error) if error.code == 409 && tries > 0 => {}
                deleted => return deleted,
            }
        }
    }

    async fn run_by_budget(&self, pod: &Value) -> Result<(), Status> {
        let Some(budget) = take_disruption(self.request, pod, self.dry_run).await? else {
            return self.delete(&self.options).await;
        };
        if self.has_resource_version() {
            return self.delete(&self.options).await;
        }
        match self.delete(&self.options_for(pod)).await {
            // The pod may be healthy by now.
            Err(error) if error.code == 409 => Err(being_processed(&budget)),
            deleted => deleted,
        }
    }

    async fn read_pod(&self) -> Result<Value, Status> {
        let Request { cluster, kind, attributes, .. } = self.request;
        let found = cluster.objects.get(kind, &attributes.namespace, &attributes.name).await?;
        kind.read(&found).await
    }

    async fn delete(&self, options: &Value) -> Result<(), Status> {
        delete::evict(self.request, options, self.dry_run, disrupted).await
    }

    /// Returns true if the caller named the pod's resourceVersion.
    fn has_resource_version(&self) -> bool {
        self.options.pointer("/preconditions/resourceVersion").is_some_and(Value::is_string)
    }

    /// Returns options that delete the pod only as it is.
    fn options_for(&self, pod: &Value) -> Value {
        let mut options = self.options.clone();
        let version = object_meta::text(object_meta::of(pod), "resourceVersion");
        options["preconditions"]["resourceVersion"] = version.into();
        options
    }
}

/// Returns the pod with a DisruptionTarget condition.
fn disrupted(pod: &Value) -> Value {
    let mut marked = pod.clone();
    if condition(pod, "DisruptionTarget").is_none() {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastTransitionTime": now().to_string(),
        });
        super::pods::set_condition(&mut marked, &condition);
    }
    marked
}

/// Returns true for a pod that is not running, which needs no budget.
fn needs_no_budget(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed" | "Pending") || is_terminating(pod)
}

fn phase(pod: &Value) -> &str {
    pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default()
}

/// Takes a disruption from the pod's budget. Returns the name of a budget that lets the pod go uncounted because it is not
/// ready.
async fn take_disruption(request: &Request, pod: &Value, dry_run: bool) -> Result<Option<String>, Status> {
    let kinds = request.cluster.objects.registry.kinds();
    let Some(kind) = kinds.get("policy", "v1", "poddisruptionbudgets").cloned() else { return Ok(None) };
    let attributes = |name: &str, subresource: Option<Subresource>| Attributes {
        subresource,
        ..request.attributes.for_object(kind.group_resource(), "v1", &request.attributes.namespace, name)
    };
    let (_, budgets) = listing::select(&request.nested(kind.clone(), attributes("", None))).await?;
    let budgets: Vec<Value> = budgets.into_iter().filter(|budget| covers(budget, pod)).collect();
    let budget = match budgets.as_slice() {
        [] => return Ok(None),
        [budget] => budget,
        _ => {
            return Err(Status::plain(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    let name = object_meta::text(object_meta::of(budget), "name");
    if !is_ready(pod) && allows_unhealthy_eviction(budget) {
        return Ok(Some(name.to_owned()));
    }
    let pod_name = &request.attributes.name;
    let status = attributes(name, Some(Subresource::Status));
    let change = request.nested(kind, status);
    update::change(&change, dry_run, |budget| decrement(budget, pod_name)).await.map(|_| None)
}

/// Returns true if a budget selects a pod. No selector selects none, an empty one all.
fn covers(budget: &Value, pod: &Value) -> bool {
    let selector = budget.pointer("/spec/selector").filter(|selector| !selector.is_null());
    let selector = selector.and_then(|selector| labels::Selector::from_label_selector(selector).ok());
    selector.is_some_and(|selector| selector.matches_object(pod))
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.get("status") == Some(&json!("True")))
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition.get("type").and_then(Value::as_str) == Some(kind))
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// Returns true if a budget allows the eviction of unhealthy pods.
fn allows_unhealthy_eviction(budget: &Value) -> bool {
    let policy = budget.pointer("/spec/unhealthyPodEvictionPolicy").and_then(Value::as_str);
    let (healthy, desired) =
        (number(budget, "/status/currentHealthy"), number(budget, "/status/desiredHealthy"));
    policy == Some("AlwaysAllow") || (healthy >= desired && desired > 0)
}

/// Returns 429 with the reason why a budget holds a pod.
fn refused(seconds: u32, why: String) -> Status {
    Status::too_many_requests(VIOLATES, seconds).with_cause(CAUSE, why, "")
}

/// Returns the refusal of a budget whose status is not up to date.
fn being_processed(name: &str) -> Status {
    refused(10, format!("The disruption budget {name} is still being processed by the server."))
}

/// Returns the budget after one more disruption, or the error if it allows none.
fn decrement(budget: &Value, pod: &str) -> Result<Value, Status> {
    let name = object_meta::text(object_meta::of(budget), "name");
    let forbidden = |why: &str, cause: &str| {
        let text = format!("The disruption budget {name} does not allow evicting pods currently: {cause}");
        let resource = GroupResource::new("policy", "poddisruptionbudget");
        Err(Status::forbidden(&resource, name, why).with_cause(CAUSE, text, ""))
    };
    if number(budget, "/status/observedGeneration") < number(budget, "/metadata/generation") {
        return Err(being_processed(name));
    }
    let allowed = number(budget, "/status/disruptionsAllowed");
    if allowed < 0 {
        let why = "pdb disruptions allowed is negative";
        return forbidden(why, why);
    }
    let unobserved =
        budget.pointer("/status/disruptedPods").and_then(Value::as_object).map_or(0, serde_json::Map::len);
    if unobserved > UNOBSERVED_MAX {
        return forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        );
    }
    if allowed == 0 {
        return Err(refused(0, refusal_reason(budget, name)));
    }
    let mut budget = budget.clone();
    budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
    if allowed == 1 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": number(&budget, "/status/observedGeneration"),
            "lastTransitionTime": now().to_string(),
        });
        super::pods::set_condition(&mut budget, &condition);
    }
    budget["status"]["disruptedPods"][pod] = now().to_string().into();
    Ok(budget)
}

/// Returns the reason why a budget allows no disruption.
fn refusal_reason(budget: &Value, name: &str) -> String {
    let text = |field: &str| {
        let condition = condition(budget, "DisruptionAllowed");
        condition.filter(|condition| condition.get("status") == Some(&json!("False")))?.get(field)?.as_str()
    };
    let message = text("message").filter(|message| !message.is_empty());
    let (desired, healthy) =
        (number(budget, "/status/desiredHealthy"), number(budget, "/status/currentHealthy"));
    match message {
        Some(message) if text("reason") == Some("SyncFailed") => {
            format!(
                "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
            )
        }
        _ if healthy <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently")
        }
        Some(message) => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {message}",
            text("reason").unwrap_or_default()
        ),
        None => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}
