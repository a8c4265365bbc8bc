//! Quotas that a write is charged to: those that match the object, and whether it fits.

use orlop_api::time::Time;
use orlop_kinds::accessors::{list, text};
use serde_json::Value;

use crate::{
    evaluator::{Evaluator, Scope},
    resources::ResourceList,
};

/// A write whose usage is charged.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Group of the resource.
    pub group: &'a str,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The object.
    pub object: &'a Value,
    /// The object before; absent on create.
    pub old: Option<&'a Value>,
    /// Resources that may only be used where a quota covers them, of a ResourceQuotaConfiguration.
    pub limited: &'a [Value],
    /// The time.
    pub now: Time,
}

/// A write does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is forbidden.
    Forbidden(String),
    /// It fails without a reason that clients could act on, as in Kubernetes.
    Plain(String),
}

/// Charges a write to the quotas of its namespace. Returns the new usage of each quota; `None` where it stays.
pub fn charge(
    evaluator: &Evaluator,
    request: &Request<'_>,
    quotas: &[&Value],
) -> Result<Vec<Option<ResourceList>>, Refusal> {
    let mut charged = vec![None; quotas.len()];
    let Request { object, old, now, .. } = *request;
    if !evaluator.handles(request.subresource, object, old) {
        return Ok(charged);
    }
    let matching = matching(evaluator, request, quotas)?;
    let usage = evaluator.usage(object, now);
    let negative: Vec<&str> = usage
        .0
        .iter()
        .filter(|(_, quantity)| quantity.is_negative())
        .map(|(name, _)| name.as_str())
        .collect();
    if !negative.is_empty() {
        let why = format!("quota usage is negative for resource(s): {}", negative.join(","));
        return Err(Refusal::Forbidden(why));
    }
    let more = old.map_or_else(|| usage.clone(), |old| usage.minus_at_least_zero(&evaluator.usage(old, now)));
    // A quota that the old object did not match is charged for all of it.
    let delta = |quota: &Value| match old {
        Some(old) if evaluator.is_in_all_scopes(quota, old) => more.without_zeros(),
        _ => usage.without_zeros(),
    };
    let deltas: Vec<(usize, ResourceList)> = matching
        .iter()
        .filter_map(|index| Some((*index, delta(quotas.get(*index)?))))
        .filter(|(_, delta)| !delta.is_empty())
        .collect();
    if deltas.is_empty() && (!matching.is_empty() || more.without_zeros().is_empty()) {
        return Ok(charged);
    }
    is_covered(evaluator, request, &usage, quotas, &matching)?;
    for (index, delta) in deltas {
        let Some(quota) = quotas.get(index) else { continue };
        let used = fit(request, quota, &delta)?;
        if let Some(charged) = charged.get_mut(index) {
            *charged = Some(used);
        }
    }
    Ok(charged)
}

/// Returns the quotas that a write is charged to, by index.
fn matching(evaluator: &Evaluator, request: &Request<'_>, quotas: &[&Value]) -> Result<Vec<usize>, Refusal> {
    let mut found = Vec::new();
    for (index, quota) in quotas.iter().enumerate() {
        let (hard, name) = (ResourceList::of(quota, "/status/hard"), text(quota, "/metadata/name"));
        let mut limited = evaluator.matching(&hard.names());
        if limited.is_empty() || !evaluator.is_in_all_scopes(quota, request.object) {
            continue;
        }
        evaluator
            .check_constraints(&limited, request.object)
            .map_err(|why| Refusal::Forbidden(format!("failed quota: {name}: {why}")))?;
        let used = ResourceList::of(quota, "/status/used");
        if limited.iter().any(|resource| used.get(resource).is_none()) {
            limited.sort_unstable();
            let resources = limited.join(",");
            return Err(Refusal::Forbidden(format!(
                "status unknown for quota: {name}, resources: {resources}"
            )));
        }
        found.push(index);
    }
    Ok(found)
}

/// Returns the usage of a quota with the charge, if it fits.
fn fit(request: &Request<'_>, quota: &Value, delta: &ResourceList) -> Result<ResourceList, Refusal> {
    let (hard, mut used) = (ResourceList::of(quota, "/status/hard"), ResourceList::of(quota, "/status/used"));
    let before = used.clone();
    let requested = delta.only(&hard.names());
    used.add(&requested);
    let exceeds = |name: &&str| match (used.get(name), hard.get(name)) {
        (Some(used), Some(hard)) => used > hard,
        _ => false,
    };
    let names = requested.names();
    let exceeded: Vec<&str> = names.into_iter().filter(exceeds).collect();
    if request.subresource != "status" && !exceeded.is_empty() {
        return Err(Refusal::Forbidden(format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            text(quota, "/metadata/name"),
            requested.only(&exceeded),
            before.only(&exceeded),
            hard.only(&exceeded),
        )));
    }
    Ok(used)
}

/// Checks that quotas cover what may only be used where one does.
pub fn is_covered(
    evaluator: &Evaluator,
    request: &Request<'_>,
    usage: &ResourceList,
    quotas: &[&Value],
    matching: &[usize],
) -> Result<(), Refusal> {
    if request.limited.is_empty() {
        return Ok(());
    }
    let is_own = |limited: &&Value| {
        (text(limited, "/apiGroup"), text(limited, "/resource")) == (request.group, request.resource)
    };
    let covered: Vec<String> = matching
        .iter()
        .filter_map(|index| quotas.get(*index))
        .flat_map(|quota| {
            let hard = ResourceList::of(quota, "/status/hard");
            evaluator.matching(&hard.names()).into_iter().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let parts: Vec<&str> = request
        .limited
        .iter()
        .filter(is_own)
        .flat_map(|limited| list(limited, "/matchContains"))
        .filter_map(Value::as_str)
        .collect();
    let without_zeros = usage.without_zeros();
    let missing: Vec<&str> = without_zeros
        .names()
        .into_iter()
        .filter(|name| parts.iter().any(|part| name.contains(part)))
        .filter(|name| !covered.iter().any(|covered| covered == name))
        .collect();
    if !missing.is_empty() {
        return Err(Refusal::Forbidden(format!("insufficient quota to consume: {}", missing.join(","))));
    }
    let limited = request.limited.iter().flat_map(|limited| list(limited, "/matchScopes")).map(Scope::of);
    let in_scope = |scope: &Scope<'_>| evaluator.is_in_scope(scope, request.object);
    let of_quotas: Vec<&str> = quotas
        .iter()
        .flat_map(|quota| Scope::all_of(quota))
        .filter(in_scope)
        .map(|scope| scope.name)
        .collect();
    let uncovered: Vec<String> = limited
        .filter(in_scope)
        .filter(|scope| !of_quotas.contains(&scope.name))
        .map(|scope| {
            let values: Vec<&str> = scope.values.iter().filter_map(Value::as_str).collect();
            format!("{{{} {} [{}]}}", scope.name, scope.operator, values.join(" "))
        })
        .collect();
    if uncovered.is_empty() {
        return Ok(());
    }
    Err(Refusal::Plain(format!("insufficient quota to match these scopes: [{}]", uncovered.join(" "))))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn quota(hard: Value, used: Value) -> Value {
        json!({"metadata": {"name": "q"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}})
    }

    fn pod(cpu: &str) -> Value {
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    }

    fn charged(
        object: &Value,
        old: Option<&Value>,
        quotas: &[Value],
    ) -> Result<Vec<Option<String>>, Refusal> {
        let request = Request {
            group: "",
            resource: "pods",
            subresource: if old.is_some() { "resize" } else { "" },
            object,
            old,
            limited: &[],
            now: Time::default(),
        };
        let quotas: Vec<&Value> = quotas.iter().collect();
        let charged = charge(&Evaluator::Pods, &request, &quotas)?;
        Ok(charged.into_iter().map(|used| used.map(|used| used.to_string())).collect())
    }

    #[test]
    fn create_is_charged_to_every_matching_quota() {
        let quotas = [
            quota(json!({"pods": "5"}), json!({"pods": "4"})),
            quota(json!({"services": "5"}), json!({"services": "5"})),
            quota(json!({"requests.cpu": "2"}), json!({"requests.cpu": "1500m"})),
        ];
        let charged = charged(&pod("500m"), None, &quotas).unwrap();
        assert_eq!(charged, [Some("pods=5".to_owned()), None, Some("requests.cpu=2".to_owned())]);
    }

    #[test]
    fn messages_match_kubernetes() {
        let refused = |quota: Value, pod: &Value| match charged(pod, None, &[quota]) {
            Err(Refusal::Forbidden(why)) => why,
            other => format!("{other:?}"),
        };
        assert_eq!(
            refused(
                quota(json!({"pods": "5", "cpu": "1"}), json!({"pods": "5", "cpu": "900m"})),
                &pod("200m")
            ),
            "exceeded quota: q, requested: cpu=200m,pods=1, used: cpu=900m,pods=5, limited: cpu=1,pods=5"
        );
        assert_eq!(
            refused(quota(json!({"pods": "5", "cpu": "1"}), json!({"pods": "5"})), &pod("200m")),
            "status unknown for quota: q, resources: cpu,pods"
        );
        let bare = json!({"spec": {"containers": [{"name": "c"}]}});
        assert_eq!(
            refused(quota(json!({"cpu": "1"}), json!({"cpu": "0"})), &bare),
            "failed quota: q: must specify cpu for: c"
        );
    }

    #[test]
    fn update_is_charged_for_the_difference() {
        let quotas = [quota(json!({"requests.cpu": "2"}), json!({"requests.cpu": "1"}))];
        let old = pod("1");
        assert_eq!(
            charged(&pod("1500m"), Some(&old), &quotas).unwrap(),
            [Some("requests.cpu=1500m".to_owned())]
        );
        assert_eq!(charged(&pod("500m"), Some(&old), &quotas).unwrap(), [None]);
        assert!(charged(&pod("2500m"), Some(&old), &quotas).is_err());
    }

    #[test]
    fn limited_resources_need_a_quota_that_covers_them() {
        let limited = [json!({"resource": "pods", "matchContains": ["cpu"],
            "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]})];
        let check = |object: &Value, quotas: &[&Value]| {
            let request = Request {
                group: "",
                resource: "pods",
                subresource: "",
                object,
                old: None,
                limited: &limited,
                now: Time::default(),
            };
            charge(&Evaluator::Pods, &request, quotas).map(drop)
        };
        let why = "insufficient quota to consume: cpu,requests.cpu".to_owned();
        assert_eq!(check(&pod("1"), &[]), Err(Refusal::Forbidden(why)));
        let high = json!({"spec": {"priorityClassName": "high", "containers": []}});
        let why = "insufficient quota to match these scopes: [{PriorityClass In [high]}]".to_owned();
        assert_eq!(check(&high, &[]), Err(Refusal::Plain(why)));
        assert_eq!(check(&json!({"spec": {"containers": []}}), &[]), Ok(()));
    }
}
