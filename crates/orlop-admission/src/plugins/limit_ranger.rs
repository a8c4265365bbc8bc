//! LimitRanger: gives containers the default requests and limits of their namespace, and holds minima, maxima and ratios.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::{field_error::aggregate, quantity::Quantity, status::Status};
use orlop_kinds::accessors::{is_terminating, list, map, text};
use orlop_quota::{
    ResourceList,
    resources::{Side, of_container, of_pod_spec},
};
use serde_json::{Map, Value};

use super::pods::{Containers, map_mut, spec, spec_mut};
use crate::{
    Admission, AdmissionRequest, Operation, Phase, Resources,
    listers::{LIMIT_RANGES, Listers},
};

/// Annotation that says what was set.
const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// Value from which on quantities are compared in units, so that thousandths do not overflow.
const MILLI_MAX: i64 = i64::MAX / 1000;

/// Enforces limit ranges.
#[derive(Debug)]
pub(super) struct LimitRanger {
    listers: Arc<dyn Listers>,
}

impl LimitRanger {
    pub(super) fn new(listers: Arc<dyn Listers>) -> Self {
        Self { listers }
    }

    async fn ranges(
        &self,
        request: &AdmissionRequest<'_>,
        old: Option<&Value>,
    ) -> Result<Vec<Arc<Value>>, Status> {
        let is_pod = request.attributes.resource == "pods";
        let is_handled = match (request.subresource(), request.operation) {
            ("resize", Operation::Update) => is_pod,
            // Resources of a pod change by a resize only.
            ("", Operation::Update) => !is_pod,
            (subresource, _) => subresource.is_empty(),
        };
        if !is_handled || old.is_some_and(is_terminating) {
            return Ok(Vec::new());
        }
        let ranges = self.listers.list(LIMIT_RANGES).await?;
        Ok(ranges.in_namespace(request.namespace()).cloned().collect())
    }
}

#[async_trait]
impl Admission for LimitRanger {
    fn resources(&self) -> Resources {
        Resources::Only(&[("", "pods"), ("", "persistentvolumeclaims")])
    }

    fn handles(&self, _phase: Phase, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn mutate(
        &self,
        request: &AdmissionRequest<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if request.attributes.resource == "pods" {
            for range in self.ranges(request, old).await? {
                set_defaults(object, &range);
            }
        }
        Ok(())
    }

    async fn validate(
        &self,
        request: &AdmissionRequest<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let Some(object) = object else { return Ok(()) };
        for range in self.ranges(request, old).await? {
            let errors = match request.attributes.resource.as_str() {
                "pods" => check_pod(spec(object), &range),
                _ => check_claim(spec(object), &range),
            };
            if !errors.is_empty() {
                return Err(request.forbidden(object, aggregate(&errors)));
            }
        }
        Ok(())
    }
}

fn limits_of<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    list(range, "/spec/limits").iter().filter(move |limit| text(limit, "/type") == kind)
}

fn set_defaults(pod: &mut Value, range: &Value) {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for limit in limits_of(range, "Container") {
        requests.extend(map(limit, "/defaultRequest").clone());
        limits.extend(map(limit, "/default").clone());
    }
    let mut done = Vec::new();
    for (containers, kind) in [(Containers::Main, "container"), (Containers::Init, "init container")] {
        for container in containers.of_mut(spec_mut(pod)) {
            let name = text(container, "/name").to_owned();
            // Limits are set first, and requests are reported first.
            let set_limits = merge(container, "limits", &limits);
            let set_requests = merge(container, "requests", &requests);
            for (set, what) in [(set_requests, "request"), (set_limits, "limit")] {
                if !set.is_empty() {
                    done.push(format!("{} {what} for {kind} {name}", set.join(", ")));
                }
            }
        }
    }
    if !done.is_empty() {
        let metadata = map_mut(map_mut(pod).entry("metadata").or_insert(Value::Null));
        let annotations = map_mut(metadata.entry("annotations").or_insert(Value::Null));
        annotations
            .insert(ANNOTATION.to_owned(), format!("LimitRanger plugin set: {}", done.join("; ")).into());
    }
}

/// Sets the defaults that a container lacks. Returns their names.
fn merge(container: &mut Value, field: &str, defaults: &Map<String, Value>) -> Vec<String> {
    let missing: Vec<(String, Value)> = defaults
        .iter()
        .filter(|(name, _)| !map(container, &format!("/resources/{field}")).contains_key(*name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let mut names: Vec<String> = missing.iter().map(|(name, _)| name.clone()).collect();
    names.sort_unstable();
    if !missing.is_empty() {
        let resources = map_mut(map_mut(container).entry("resources").or_insert(Value::Null));
        map_mut(resources.entry(field).or_insert(Value::Null)).extend(missing);
    }
    names
}

/// The requests and limits that a constraint looks at.
struct Amounts {
    requests: ResourceList,
    limits: ResourceList,
}

fn check_pod(spec: &Value, range: &Value) -> Vec<String> {
    let mut errors = Vec::new();
    for limit in list(range, "/spec/limits") {
        match text(limit, "/type") {
            "Container" => {
                for containers in [Containers::Main, Containers::Init] {
                    for container in containers.of(spec) {
                        let amounts = Amounts {
                            requests: of_container(container, Side::Requests),
                            limits: of_container(container, Side::Limits),
                        };
                        errors.extend(check(limit, &amounts));
                    }
                }
            }
            "Pod" => {
                let amounts = Amounts {
                    requests: of_pod_spec(spec, Side::Requests),
                    limits: of_pod_spec(spec, Side::Limits),
                };
                errors.extend(check(limit, &amounts));
            }
            _ => {}
        }
    }
    errors
}

fn check_claim(spec: &Value, range: &Value) -> Vec<String> {
    const KIND: &str = "PersistentVolumeClaim";
    let amounts =
        Amounts { requests: ResourceList::of(spec, "/resources/requests"), limits: ResourceList::default() };
    let mut errors = Vec::new();
    for limit in limits_of(range, KIND) {
        let minima = ResourceList::of(limit, "/min").0.into_iter();
        errors.extend(minima.filter_map(|(name, minimum)| check_minimum(KIND, &name, minimum, &amounts)));
        // Limits of a claim mean nothing.
        for (name, maximum) in ResourceList::of(limit, "/max").0 {
            let prefix = format!("maximum {name} usage per {KIND} is {maximum}");
            match amounts.requests.get(&name) {
                None => errors.push(format!("{prefix}.  No request is specified")),
                Some(request) if compared(request, maximum).0 > compared(request, maximum).1 => {
                    errors.push(format!("{prefix}, but request is {request}"));
                }
                Some(_) => {}
            }
        }
    }
    errors
}

fn check(limit: &Value, amounts: &Amounts) -> Vec<String> {
    let kind = text(limit, "/type");
    let each = |pointer: &str| ResourceList::of(limit, pointer).0.into_iter();
    let minima = each("/min").filter_map(|(name, minimum)| check_minimum(kind, &name, minimum, amounts));
    let maxima = each("/max").filter_map(|(name, maximum)| check_maximum(kind, &name, maximum, amounts));
    let ratios = each("/maxLimitRequestRatio");
    let ratios = ratios.filter_map(|(name, maximum)| check_ratio(kind, &name, maximum, amounts));
    minima.chain(maxima).chain(ratios).collect()
}

/// Returns two quantities in thousandths, or in units if that would overflow.
fn compared(one: Quantity, other: Quantity) -> (i64, i64) {
    match one.units().max(other.units()) > MILLI_MAX {
        true => (one.units(), other.units()),
        false => (one.milli_units(), other.milli_units()),
    }
}

fn is_less(one: Quantity, other: Quantity) -> bool {
    let (one, other) = compared(one, other);
    one < other
}

fn check_minimum(kind: &str, name: &str, minimum: Quantity, amounts: &Amounts) -> Option<String> {
    let prefix = format!("minimum {name} usage per {kind} is {minimum}");
    let Some(request) = amounts.requests.get(name) else {
        return Some(format!("{prefix}.  No request is specified"));
    };
    if is_less(request, minimum) {
        return Some(format!("{prefix}, but request is {request}"));
    }
    let limit = amounts.limits.get(name).filter(|limit| is_less(*limit, minimum))?;
    Some(format!("{prefix}, but limit is {limit}"))
}

fn check_maximum(kind: &str, name: &str, maximum: Quantity, amounts: &Amounts) -> Option<String> {
    let prefix = format!("maximum {name} usage per {kind} is {maximum}");
    let Some(limit) = amounts.limits.get(name) else {
        return Some(format!("{prefix}.  No limit is specified"));
    };
    if is_less(maximum, limit) {
        return Some(format!("{prefix}, but limit is {limit}"));
    }
    let request = amounts.requests.get(name).filter(|request| is_less(maximum, *request))?;
    Some(format!("{prefix}, but request is {request}"))
}

fn check_ratio(kind: &str, name: &str, maximum: Quantity, amounts: &Amounts) -> Option<String> {
    let prefix = format!("{name} max limit to request ratio per {kind} is {maximum}");
    let present = |list: &ResourceList| list.get(name).filter(|amount| !amount.is_zero());
    let Some(request) = present(&amounts.requests) else {
        return Some(format!("{prefix}, but no request is specified or request is 0"));
    };
    let Some(limit) = present(&amounts.limits) else {
        return Some(format!("{prefix}, but no limit is specified or limit is 0"));
    };
    let (limit, request) = compared(limit, request);
    let ratio = limit as f64 / request as f64;
    let exceeds = match maximum.units() > MILLI_MAX {
        true => ratio > maximum.units() as f64,
        false => ratio * 1000.0 > maximum.milli_units() as f64,
    };
    exceeds.then(|| format!("{prefix}, but provided ratio is {ratio:.6}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::plugins::testing::{FakeListers, Run, message};

    fn plugin(limits: Value) -> LimitRanger {
        let range = json!({"metadata": {"name": "limits"}, "spec": {"limits": limits}});
        LimitRanger::new(FakeListers::with(&[(LIMIT_RANGES, "ns", range)]))
    }

    fn pod(resources: Value) -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}})
    }

    async fn create(limits: Value, pod: Value) -> Result<Value, Status> {
        Run::create("", "pods").mutate(&plugin(limits), pod).await
    }

    #[tokio::test]
    async fn defaults_are_set_and_annotated() {
        let limits = json!([{"type": "Container", "default": {"cpu": "1", "memory": "1Gi"},
            "defaultRequest": {"cpu": "100m"}}]);
        let created = create(limits, pod(json!({"limits": {"memory": "2Gi"}}))).await.unwrap();
        assert_eq!(
            created["spec"]["containers"][0]["resources"],
            json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "1", "memory": "2Gi"}})
        );
        assert_eq!(
            created["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
        );
    }

    #[tokio::test]
    async fn minima_maxima_and_ratios_are_held() {
        let refused = |limits: Value, resources: Value| async move {
            let message = message(create(limits, pod(resources)).await);
            message.strip_prefix("pods \"p\" is forbidden: ").unwrap_or(&message).to_owned()
        };
        let minimum = json!([{"type": "Container", "min": {"cpu": "50m"}}]);
        assert_eq!(
            refused(minimum.clone(), json!({"requests": {"cpu": "10m"}})).await,
            "minimum cpu usage per Container is 50m, but request is 10m"
        );
        assert_eq!(
            refused(minimum, json!({})).await,
            "minimum cpu usage per Container is 50m.  No request is specified"
        );
        let maximum = json!([{"type": "Pod", "max": {"memory": "1Gi"}}]);
        assert_eq!(
            refused(maximum.clone(), json!({"limits": {"memory": "2Gi"}})).await,
            "maximum memory usage per Pod is 1Gi, but limit is 2Gi"
        );
        assert_eq!(
            refused(maximum, json!({})).await,
            "maximum memory usage per Pod is 1Gi.  No limit is specified"
        );
        let ratio = json!([{"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}]);
        assert_eq!(
            refused(ratio, json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "300m"}})).await,
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000"
        );
        let both = json!([{"type": "Container", "min": {"cpu": "1", "memory": "1"}}]);
        assert_eq!(
            refused(both, json!({})).await,
            "[minimum cpu usage per Container is 1.  No request is specified, minimum memory usage per Container is \
             1.  No request is specified]"
        );
    }

    #[tokio::test]
    async fn storage_of_claims_is_limited() {
        let limits =
            json!([{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "2Gi"}}]);
        let claim = |size: &str| {
            let claim =
                json!({"metadata": {"name": "c"}, "spec": {"resources": {"requests": {"storage": size}}}});
            let plugin = plugin(limits.clone());
            async move { message(Run::create("", "persistentvolumeclaims").mutate(&plugin, claim).await) }
        };
        assert_eq!(claim("1536Mi").await, "");
        assert!(
            claim("3Gi")
                .await
                .ends_with("maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi")
        );
        assert!(
            claim("1Mi")
                .await
                .ends_with("minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi")
        );
    }

    #[tokio::test]
    async fn update_of_a_pod_is_not_limited_but_its_resize_is() {
        let limits = json!([{"type": "Container", "max": {"cpu": "1"}}]);
        let large = pod(json!({"requests": {"cpu": "2"}, "limits": {"cpu": "2"}}));
        let update = Run::update("", "pods", large.clone());
        assert_eq!(message(update.clone().mutate(&plugin(limits.clone()), large.clone()).await), "");
        assert_ne!(message(update.at("resize").mutate(&plugin(limits), large).await), "");
    }
}
