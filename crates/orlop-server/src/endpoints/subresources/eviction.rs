//! Eviction: deletes a pod if its PodDisruptionBudget allows it.
//!
//! The disruption controller computes a budget's status; an eviction decrements disruptionsAllowed and records the
//! pod in one write, so that two evictions cannot both take the last disruption.

use http::Response;
use orlop_api::{
    group_version::{GroupResource, GroupVersionKind},
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
    let dry_run = options.dry_run || delete_options.get("dryRun").is_some_and(|dry_run| !dry_run.is_null());
    let attributes = &request.attributes;
    let found = request.cluster.objects.get(&request.kind, &attributes.namespace, &attributes.name).await?;
    let pod = request.kind.read(&found).await?;
    if !needs_no_budget(&pod) {
        consume_budget(request, &pod, dry_run).await?;
    }
    delete::evict(request, &delete_options, options.dry_run, disrupted).await?;
    let done = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    answer::object(request, 201, done)
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
    let phase = pod.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    matches!(phase, "Succeeded" | "Failed" | "Pending") || is_terminating(pod)
}

async fn consume_budget(request: &Request, pod: &Value, dry_run: bool) -> Result<(), Status> {
    let kinds = request.cluster.objects.registry.kinds();
    let Some(kind) = kinds.get("policy", "v1", "poddisruptionbudgets").cloned() else { return Ok(()) };
    let attributes = |name: &str, subresource: Option<Subresource>| Attributes {
        subresource,
        ..request.attributes.for_object(kind.group_resource(), "v1", &request.attributes.namespace, name)
    };
    let (_, budgets) = listing::select(&request.nested(kind.clone(), attributes("", None))).await?;
    let budgets: Vec<Value> = budgets.into_iter().filter(|budget| covers(budget, pod)).collect();
    let budget = match budgets.as_slice() {
        [] => return Ok(()),
        [budget] => budget,
        _ => {
            return Err(Status::plain(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
    };
    if !is_ready(pod) && allows_unhealthy_eviction(budget) {
        return Ok(());
    }
    let name = object_meta::text(object_meta::of(budget), "name");
    let pod_name = &request.attributes.name;
    let status = attributes(name, Some(Subresource::Status));
    let change = request.nested(kind, status);
    update::change(&change, dry_run, |budget| decrement(budget, pod_name)).await.map(drop)
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

/// Returns the budget after one more disruption, or the error if it allows none.
fn decrement(budget: &Value, pod: &str) -> Result<Value, Status> {
    let name = object_meta::text(object_meta::of(budget), "name");
    let refused = |seconds: u32, why: String| {
        Err(Status::too_many_requests(VIOLATES, seconds).with_cause("DisruptionBudget", why, ""))
    };
    let forbidden =
        |why: &str| Err(Status::forbidden(&GroupResource::new("policy", "poddisruptionbudget"), name, why));
    if number(budget, "/status/observedGeneration") < number(budget, "/metadata/generation") {
        return refused(10, format!("The disruption budget {name} is still being processed by the server."));
    }
    let allowed = number(budget, "/status/disruptionsAllowed");
    if allowed < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    let unobserved =
        budget.pointer("/status/disruptedPods").and_then(Value::as_object).map_or(0, serde_json::Map::len);
    if unobserved > UNOBSERVED_MAX {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if allowed == 0 {
        return refused(0, refusal_reason(budget, name));
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
