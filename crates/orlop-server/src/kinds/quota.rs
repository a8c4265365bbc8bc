//! Quotas and limit ranges: how much a namespace and each thing in it may use.

use std::collections::BTreeSet;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
    object_meta::IMMUTABLE,
    quantity::Quantity,
};
use serde_json::{Value, json};

use super::{
    check,
    columns::{Heading, Table, name},
    fill, pod,
    quantities::{self, shown},
    read::{list, map, repeats, text, texts},
};
use crate::{
    registry::Hooks,
    table::{Columns, age},
};

const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
];

static QUOTAS: Table = Table {
    headings: &[Heading::NAME, Heading::text("Request"), Heading::text("Limit"), Heading::AGE],
    cells: |object, now| {
        let used = map(object, "/status/used");
        let column = |limits: bool| -> Value {
            let of =
                map(object, "/status/hard").iter().filter(|(key, _)| key.starts_with("limits.") == limits);
            let parts =
                of.map(|(key, hard)| format!("{key}: {}/{}", shown(used.get(key)), shown(Some(hard))));
            parts.collect::<Vec<_>>().join(", ").into()
        };
        vec![name(object), column(false), column(true), age(object, now)]
    },
};

pub(super) struct ResourceQuota;

impl Hooks for ResourceQuota {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = Vec::new();
        for (pointer, path) in [
            ("/spec/hard", FieldPath::root("spec").child("hard")),
            ("/status/hard", FieldPath::root("status").child("hard")),
            ("/status/used", FieldPath::root("status").child("used")),
        ] {
            for (key, amount) in map(object, pointer) {
                errors.extend(pod::quota_name(key, &path.key(key)));
                errors.extend(pod::amount(key, amount, &path.key(key)));
            }
        }
        errors.extend(scopes(object));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let scopes = |quota: &Value| -> BTreeSet<String> {
            texts(quota, "/spec/scopes").into_iter().map(str::to_owned).collect()
        };
        if scopes(object) == scopes(old) {
            return Vec::new();
        }
        let path = FieldPath::root("spec").child("scopes");
        vec![FieldError::invalid(&path, json!(texts(object, "/spec/scopes")), IMMUTABLE)]
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&QUOTAS)
    }
}

/// What a quota of some pods or claims can count, and all that any quota can.
const OF_PODS: &[&str] =
    &["pods", "cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const OF_CLAIMS: &[&str] = &["persistentvolumeclaims", "requests.storage"];
const OF_ANY: &[&str] = &[
    "ephemeral-storage",
    "requests.ephemeral-storage",
    "limits.ephemeral-storage",
    "resourcequotas",
    "services",
    "services.nodeports",
    "services.loadbalancers",
    "replicationcontrollers",
    "secrets",
    "configmaps",
];
const ABOUT_PODS: &[&str] =
    &["Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "CrossNamespacePodAffinity"];

/// Whether some of what a quota limits cannot be counted within a scope.
fn is_beyond(scope: &str, object: &Value) -> bool {
    let counted: &[&str] = match scope {
        "BestEffort" => &["pods"],
        "VolumeAttributesClass" => OF_CLAIMS,
        _ if SCOPES.contains(&scope) => OF_PODS,
        _ => return false,
    };
    let standard = |key: &&str| [OF_PODS, OF_CLAIMS, OF_ANY].iter().any(|known| known.contains(key));
    let mut limited = map(object, "/spec/hard").keys().map(String::as_str).filter(standard);
    limited.any(|key| !counted.contains(&key))
}

fn scopes(object: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("spec").child("scopes");
    let scopes = texts(object, "/spec/scopes");
    let refused = |why: &str| FieldError::invalid(&path, json!(scopes), why);
    let mut errors = Vec::new();
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            errors.push(refused("unsupported scope"));
        }
        if is_beyond(scope, object) {
            errors.push(refused(BEYOND));
        }
    }
    if in_conflict(&scopes) {
        errors.push(refused(CONFLICTING));
    }
    errors.extend(selected(object));
    errors
}

const BEYOND: &str = "unsupported scope applied to resource";
const CONFLICTING: &str = "conflicting scopes";

fn in_conflict(scopes: &[&str]) -> bool {
    let pairs = [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]];
    pairs.iter().any(|pair| pair.iter().all(|scope| scopes.contains(scope)))
}

/// Scopes that are selected by what they hold.
fn selected(object: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("spec").child("scopeSelector").child("matchExpressions");
    let mut errors = Vec::new();
    let expressions = list(object, "/spec/scopeSelector/matchExpressions");
    for expression in expressions {
        let (scope, operator) = (text(expression, "/scopeName"), text(expression, "/operator"));
        let values = list(expression, "/values");
        if !SCOPES.contains(&scope) {
            errors.push(FieldError::invalid(&path.child("scopeName"), scope, "unsupported scope"));
        }
        if is_beyond(scope, object) {
            let selector = object.pointer("/spec/scopeSelector").cloned().unwrap_or_default();
            errors.push(FieldError::invalid(&path, selector, BEYOND));
        }
        if ABOUT_PODS.contains(&scope) && operator != "Exists" {
            let detail = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                          ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                          ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.push(FieldError::invalid(&path.child("operator"), operator, detail));
        }
        match operator {
            "In" | "NotIn" if values.is_empty() => {
                let detail =
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(&path.child("values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail =
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(FieldError::invalid(&path.child("values"), values.to_vec(), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                let detail = "not a valid selector operator";
                errors.push(FieldError::invalid(&path.child("operator"), other, detail));
            }
        }
    }
    let scopes: Vec<&str> = expressions.iter().map(|expression| text(expression, "/scopeName")).collect();
    if in_conflict(&scopes) {
        errors.push(FieldError::invalid(&path, json!(scopes), CONFLICTING));
    }
    errors
}

/// Limit ranges have no table of their own.
pub(super) struct LimitRange;

impl Hooks for LimitRange {
    fn default(&self, object: &mut Value) {
        for item in fill::child(object, "spec").into_iter().flat_map(|spec| fill::items(spec, "limits")) {
            if text(item, "/type") != "Container" {
                continue;
            }
            // A limit defaults to the most, a request to the limit, and else to the least.
            let most = map(item, "/max").clone();
            fill::entries(item, "default", &most);
            let limit = map(item, "/default").clone();
            fill::entries(item, "defaultRequest", &limit);
            let least = map(item, "/min").clone();
            fill::entries(item, "defaultRequest", &least);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let limits = list(object, "/spec/limits");
        let path = FieldPath::root("spec").child("limits");
        let mut errors = Vec::new();
        let repeated = repeats(limits, |item| text(item, "/type"));
        for ((index, item), repeated) in limits.iter().enumerate().zip(repeated) {
            let path = path.index(index);
            errors.extend(kind(item, &path));
            if repeated {
                errors.push(FieldError::duplicate(&path.child("type"), text(item, "/type")));
            }
            errors.extend(bounds(item, &path));
        }
        errors
    }
}

fn kind(item: &Value, path: &FieldPath) -> Vec<FieldError> {
    let (given, path) = (text(item, "/type"), path.child("type"));
    let problems = names::qualified_name(given);
    if !problems.is_empty() {
        return check::each(&path, given, problems);
    }
    if !given.contains('/') && !matches!(given, "Pod" | "Container" | "PersistentVolumeClaim") {
        return vec![FieldError::invalid(&path, given, "must be a standard limit type or fully qualified")];
    }
    Vec::new()
}

fn bounds(item: &Value, path: &FieldPath) -> Vec<FieldError> {
    let kind = text(item, "/type");
    let mut errors = Vec::new();
    let mut keys: BTreeSet<&String> = BTreeSet::new();
    for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let entries = map(item, &format!("/{field}"));
        if kind == "Pod" && field.starts_with("default") {
            if !entries.is_empty() {
                let detail = "may not be specified when `type` is 'Pod'";
                errors.push(FieldError::forbidden(&path.child(field), detail));
            }
            continue;
        }
        keys.extend(entries.keys());
        errors.extend(entries.keys().flat_map(|key| pod::limit_name(kind, key, &path.child(field).key(key))));
    }
    let storage = |field: &str| map(item, field).contains_key("storage");
    if kind == "PersistentVolumeClaim" && !storage("/min") && !storage("/max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(FieldError::required(&path.child("limits"), detail));
    }
    errors.extend(keys.into_iter().flat_map(|key| ordered(item, key, path)));
    errors
}

/// Least, request, limit and most, in that order.
fn ordered(item: &Value, key: &str, path: &FieldPath) -> Vec<FieldError> {
    let is_pod = text(item, "/type") == "Pod";
    let of = |field: &str| {
        // A pod has no defaults; those given have been refused already.
        map(item, &format!("/{field}")).get(key).filter(|_| !(is_pod && field.starts_with("default")))
    };
    // Which is greater than which, where that is told, and whose value is shown.
    const PAIRS: [(&str, &str, &str, &str, &str, &str); 6] = [
        ("min", "max", "min", "min", "min value", "max value"),
        ("min", "defaultRequest", "defaultRequest", "defaultRequest", "min value", "default request value"),
        ("defaultRequest", "max", "defaultRequest", "defaultRequest", "default request value", "max value"),
        (
            "defaultRequest",
            "default",
            "defaultRequest",
            "defaultRequest",
            "default request value",
            "default limit value",
        ),
        ("min", "default", "default", "min", "min value", "default value"),
        ("default", "max", "default", "max", "default value", "max value"),
    ];
    let mut errors = Vec::new();
    for (less, more, at, value, less_word, more_word) in PAIRS {
        let (Some(low), Some(high)) = (of(less), of(more)) else { continue };
        if quantities::parse(low) > quantities::parse(high) {
            let detail =
                format!("{less_word} {} is greater than {more_word} {}", shown(Some(low)), shown(Some(high)));
            errors.push(FieldError::invalid(&path.child(at).key(key), shown(of(value)), detail));
        }
    }
    errors.extend(ratio(item, key, path));
    errors
}

/// How much more a limit may be than a request: not less than nothing more, nor more than the bounds leave room for.
fn ratio(item: &Value, key: &str, path: &FieldPath) -> Vec<FieldError> {
    let amount = |field: &str| map(item, &format!("/{field}")).get(key).and_then(quantities::parse);
    let Some(ratio) = amount("maxLimitRequestRatio") else { return Vec::new() };
    let refused = |why: String| {
        FieldError::invalid(&path.child("maxLimitRequestRatio").key(key), ratio.to_string(), why)
    };
    let mut errors = Vec::new();
    if Quantity::parse("1").is_ok_and(|one| ratio < one) {
        errors.push(refused(format!("ratio {ratio} is less than 1")));
    }
    if let (Some(least), Some(most)) = (amount("min"), amount("max"))
        && let room = most.milli_units() as f64 / least.milli_units() as f64
        && ratio.milli_units() as f64 / 1000.0 > room
    {
        errors.push(refused(format!("ratio {ratio} is greater than max/min = {room:.6}")));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::{super::check::tests::told, super::columns::tests::row, *};

    #[test]
    fn a_quota_limits_known_things() {
        let refused = |spec: Value| told(ResourceQuota.validate(&json!({"spec": spec})));
        assert!(
            refused(json!({"hard": {"pods": "3", "requests.cpu": "500m", "count/deployments.apps": 2}}))
                .is_empty()
        );
        assert_eq!(
            refused(
                json!({"hard": {"pods": "1500m", "secrets": -1}, "scopes": ["BestEffort", "NotBestEffort"]})
            ),
            [
                r#"spec.hard[pods]: Invalid value: "1500m": must be an integer"#,
                r#"spec.hard[secrets]: Invalid value: "-1": must be greater than or equal to 0"#,
                r#"spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: unsupported scope applied to resource"#,
                r#"spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: unsupported scope applied to resource"#,
                r#"spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes"#,
            ]
        );
        assert_eq!(
            refused(json!({"hard": {"storage": "1"}})),
            [r#"spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota"#]
        );
        let old = json!({"spec": {"scopes": ["Terminating"]}});
        assert_eq!(
            told(ResourceQuota.validate_update(&json!({}), &old)),
            ["spec.scopes: Invalid value: []: field is immutable"]
        );
        let quota = json!({"metadata": {"name": "q"}, "status": {"hard": {"pods": "3", "limits.cpu": "2"}, "used": {"pods": "1"}}});
        assert_eq!(row(&QUOTAS, &quota), ["q", "pods: 1/3", "limits.cpu: 0/2", "<unknown>"]);
    }

    #[test]
    fn a_limit_range_is_in_order() {
        let mut range = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Gi"}}]}});
        LimitRange.default(&mut range);
        assert_eq!(range["spec"]["limits"][0]["default"], json!({"cpu": "2"}));
        assert_eq!(range["spec"]["limits"][0]["defaultRequest"], json!({"cpu": "2", "memory": "1Gi"}));
        assert!(told(LimitRange.validate(&range)).is_empty());
        let refused = |limits: Value| told(LimitRange.validate(&json!({"spec": {"limits": limits}})));
        assert_eq!(
            refused(
                json!([{"type": "Pod", "min": {"cpu": "3"}, "max": {"cpu": "2"}, "default": {"cpu": "1"}}, {"type": "Pod"}, {"type": "x"}])
            ),
            [
                "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
                r#"spec.limits[0].min[cpu]: Invalid value: "3": min value 3 is greater than max value 2"#,
                r#"spec.limits[1].type: Duplicate value: "Pod""#,
                r#"spec.limits[2].type: Invalid value: "x": must be a standard limit type or fully qualified"#,
            ]
        );
        assert_eq!(
            refused(json!([{"type": "PersistentVolumeClaim"}])),
            [
                "spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided"
            ]
        );
    }
}
