//! Conversion of HorizontalPodAutoscaler between v1 and v2. v1 has one metric, CPU; everything else of v2 is kept in
//! annotations, so that a v1 client round-trips it.

use serde_json::{Map, Value, json};

use crate::Conversion;

pub(crate) const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// `autoscaling/v1`, stored as `autoscaling/v2`.
pub(crate) static V1: Conversion = Conversion {
    version: "v1",
    kind: "HorizontalPodAutoscaler",
    storage: ("autoscaling", "v2"),
    to_served: to_v1,
    to_storage: to_v2,
    index_field: str::to_owned,
};

/// Converts to v1.
fn to_v1(mut object: Value) -> Option<Value> {
    object["apiVersion"] = "autoscaling/v1".into();
    let mut notes = Map::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = take_list(spec, "metrics");
        let is_cpu = |metric: &Value| {
            metric["type"] == "Resource"
                && metric["resource"]["name"] == "cpu"
                && metric["resource"]["target"]["averageUtilization"].is_i64()
        };
        let cpu = metrics.iter().position(is_cpu);
        if let Some(cpu) = cpu.and_then(|cpu| metrics.get(cpu)) {
            let share = cpu["resource"]["target"]["averageUtilization"].clone();
            spec.insert("targetCPUUtilizationPercentage".into(), share);
        }
        let others = metrics.iter().enumerate().filter(|(index, _)| Some(*index) != cpu);
        let others: Vec<Value> =
            others.map(|(_, metric)| convert_metric(metric, "target", Shape::to_v1)).collect();
        if !others.is_empty() {
            notes.insert(METRICS.into(), Value::Array(others));
        }
        if let Some(behavior) = spec.remove("behavior").filter(|behavior| !behavior.is_null()) {
            notes.insert(BEHAVIOR.into(), capitalize_keys(behavior));
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let metrics = take_list(status, "currentMetrics");
        let cpu =
            metrics.iter().find(|metric| metric["type"] == "Resource" && metric["resource"]["name"] == "cpu");
        if let Some(share) =
            cpu.map(|cpu| &cpu["resource"]["current"]["averageUtilization"]).filter(|s| s.is_i64())
        {
            status.insert("currentCPUUtilizationPercentage".into(), share.clone());
        }
        let metrics: Vec<Value> =
            metrics.iter().map(|metric| convert_metric(metric, "current", Shape::to_v1)).collect();
        if !metrics.is_empty() {
            notes.insert(CURRENT_METRICS.into(), Value::Array(metrics));
        }
        let conditions = take_list(status, "conditions");
        if !conditions.is_empty() {
            notes.insert(CONDITIONS.into(), Value::Array(conditions));
        }
        for field in ["currentReplicas", "desiredReplicas"] {
            status.entry(field).or_insert(0.into());
        }
    }
    if !notes.is_empty() {
        let metadata = object.as_object_mut()?.entry("metadata").or_insert_with(|| json!({}));
        let annotations =
            metadata.as_object_mut()?.entry("annotations").or_insert_with(|| json!({})).as_object_mut()?;
        annotations.extend(notes.into_iter().map(|(key, note)| (key, note.to_string().into())));
    }
    Some(object)
}

/// Converts to v2.
fn to_v2(mut object: Value) -> Option<Value> {
    object["apiVersion"] = "autoscaling/v2".into();
    let mut notes = Map::new();
    // Managed fields are converted as partial objects.
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata
        && let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
    {
        for key in [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR] {
            let note = annotations.remove(key).and_then(|note| serde_json::from_str(note.as_str()?).ok());
            notes.extend(note.map(|note| (key.to_owned(), note)));
        }
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    let mut noted =
        |key: &str| notes.remove(key).and_then(|note| note.as_array().cloned()).unwrap_or_default();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let others = noted(METRICS);
        let mut metrics: Vec<Value> =
            others.iter().map(|metric| convert_metric(metric, "target", Shape::to_v2)).collect();
        let share = spec.remove("targetCPUUtilizationPercentage").filter(|share| !share.is_null());
        // v2 defaults to a CPU metric if there is none.
        let share = share.or_else(|| metrics.is_empty().then(|| 80.into()));
        metrics.extend(share.map(|share| {
            let target = json!({"type": "Utilization", "averageUtilization": share});
            json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
        }));
        spec.insert("metrics".into(), metrics.into());
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let share = status.remove("currentCPUUtilizationPercentage");
        let mut current: Vec<Value> = noted(CURRENT_METRICS)
            .iter()
            .map(|metric| convert_metric(metric, "current", Shape::to_v2))
            .collect();
        if current.is_empty()
            && let Some(share) = share
        {
            let resource = json!({"name": "cpu", "current": {"averageUtilization": share}});
            current.push(json!({"type": "Resource", "resource": resource}));
        }
        for (field, list) in [("currentMetrics", current), ("conditions", noted(CONDITIONS))] {
            if !list.is_empty() {
                status.insert(field.into(), list.into());
            }
        }
    }
    if let Some(behavior) = notes.remove(BEHAVIOR) {
        object["spec"]["behavior"] = uncapitalize_keys(behavior);
    }
    Some(object)
}

fn take_list(from: &mut Map<String, Value>, field: &str) -> Vec<Value> {
    match from.remove(field) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// Field mapping of one metric type. `{}` stands for `target` in a spec and `current` in a status; v2 nests the
/// values below an object of that name.
struct Shape {
    field: &'static str,
    /// Fields beside the values: v1 name and v2 location.
    names: &'static [(&'static str, &'static str)],
    /// Values: v1 name and v2 name below `target` or `current`.
    numbers: &'static [(&'static str, &'static str)],
}

const SHAPES: &[Shape] = &[
    Shape {
        field: "object",
        names: &[
            ("target", "/describedObject"),
            ("metricName", "/metric/name"),
            ("selector", "/metric/selector"),
        ],
        numbers: &[("averageValue", "averageValue"), ("{}Value", "value")],
    },
    Shape {
        field: "pods",
        names: &[("metricName", "/metric/name"), ("selector", "/metric/selector")],
        numbers: &[("{}AverageValue", "averageValue")],
    },
    Shape {
        field: "resource",
        names: &[("name", "/name")],
        numbers: &[("{}AverageUtilization", "averageUtilization"), ("{}AverageValue", "averageValue")],
    },
    Shape {
        field: "containerResource",
        names: &[("name", "/name"), ("container", "/container")],
        numbers: &[("{}AverageUtilization", "averageUtilization"), ("{}AverageValue", "averageValue")],
    },
    Shape {
        field: "external",
        names: &[("metricName", "/metric/name"), ("metricSelector", "/metric/selector")],
        numbers: &[("{}Value", "value"), ("{}AverageValue", "averageValue")],
    },
];

/// Converts a metric to the other version.
fn convert_metric(metric: &Value, numbers: &str, to: fn(&Shape, &Value, &str) -> Value) -> Value {
    let mut made = json!({"type": metric["type"]});
    for shape in SHAPES {
        if let Some(source) = metric.get(shape.field).filter(|source| source.is_object()) {
            made[shape.field] = to(shape, source, numbers);
        }
    }
    made
}

/// Returns the v1 name of a value: `targetAverageValue`.
fn v1_field_name(pattern: &str, numbers: &str) -> String {
    pattern.replace("{}", numbers)
}

impl Shape {
    fn to_v1(&self, source: &Value, numbers: &str) -> Value {
        let mut made = json!({});
        for (name, path) in self.names {
            if let Some(value) = source.pointer(path) {
                made[*name] = value.clone();
            }
        }
        for (name, field) in self.numbers {
            if let Some(value) = source.get(numbers).and_then(|numbers| numbers.get(field)) {
                made[v1_field_name(name, numbers)] = value.clone();
            }
        }
        // v1 cannot express a target that is an average only.
        let value = v1_field_name("{}Value", numbers);
        if self.field == "object" && made.get(&value).is_none() {
            made[value] = "0".into();
        }
        made
    }

    fn to_v2(&self, source: &Value, numbers: &str) -> Value {
        let mut made = json!({});
        for (name, path) in self.names {
            if let Some(value) = source.get(name) {
                match path.strip_prefix("/metric/") {
                    Some(field) => made["metric"][field] = value.clone(),
                    None => made[path.trim_start_matches('/')] = value.clone(),
                }
            }
        }
        let mut below = json!({});
        for (name, field) in self.numbers {
            if let Some(value) = source.get(v1_field_name(name, numbers)).filter(|value| !value.is_null()) {
                below[*field] = value.clone();
            }
        }
        if numbers == "target" {
            if self.field == "object" && below.get("averageValue").is_some() {
                below.as_object_mut().map(|below| below.remove("value"));
            }
            let kinds =
                [("averageUtilization", "Utilization"), ("value", "Value"), ("averageValue", "AverageValue")];
            let kind = kinds.iter().find(|(field, _)| below.get(field).is_some());
            below["type"] = kind.map_or("AverageValue", |(_, kind)| *kind).into();
        }
        made[numbers] = below;
        made
    }
}

/// Capitalizes keys: Kubernetes encodes `behavior` by Go field names.
fn capitalize_keys(value: Value) -> Value {
    match value {
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| (map_first_char(&key, char::to_ascii_uppercase), capitalize_keys(value)))
            .collect(),
        Value::Array(list) => list.into_iter().map(capitalize_keys).collect(),
        other => other,
    }
}

/// Undoes [`capitalize_keys`] and drops nulls.
fn uncapitalize_keys(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let there = map.into_iter().filter(|(_, value)| !value.is_null());
            there
                .map(|(key, value)| {
                    (map_first_char(&key, char::to_ascii_lowercase), uncapitalize_keys(value))
                })
                .collect()
        }
        Value::Array(list) => list.into_iter().map(uncapitalize_keys).collect(),
        other => other,
    }
}

fn map_first_char(key: &str, change: fn(&char) -> char) -> String {
    let mut characters = key.chars();
    characters.next().map(|first| change(&first)).into_iter().chain(characters).collect()
}
