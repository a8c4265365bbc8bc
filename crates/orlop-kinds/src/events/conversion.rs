//! Conversion between core and `events.k8s.io` Events, which differ in field names.

use serde_json::{Value, json};

use crate::Conversion;

/// Field names: core, `events.k8s.io`.
const NAMES: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// `events.k8s.io`, stored as core Events.
pub(crate) static CONVERSION: Conversion = Conversion {
    version: "v1",
    kind: "Event",
    storage: ("", "v1"),
    to_served: from_core,
    to_storage: to_core,
    index_field: core_field,
};

#[expect(clippy::unnecessary_wraps, reason = "every event can be converted, as not every object can")]
fn from_core(event: Value) -> Option<Value> {
    let mut event = rename_fields(event, NAMES.iter().map(|(old, new)| (*old, *new)), "events.k8s.io/v1");
    if event.get("reportingInstance").is_some_and(|instance| *instance == "") {
        event.as_object_mut().map(|fields| fields.remove("reportingInstance"));
    }
    // Go always encodes it, as a struct that is not a pointer.
    if event.get("deprecatedSource").is_none() {
        event["deprecatedSource"] = json!({});
    }
    Some(event)
}

#[expect(clippy::unnecessary_wraps, reason = "every event can be converted, as not every object can")]
fn to_core(event: Value) -> Option<Value> {
    let mut event = rename_fields(event, NAMES.iter().map(|(old, new)| (*new, *old)), "v1");
    // Core Events always have them.
    for (field, absent) in
        [("source", json!({})), ("firstTimestamp", Value::Null), ("lastTimestamp", Value::Null)]
    {
        if event.get(field).is_none() {
            event[field] = absent;
        }
    }
    Some(event)
}

fn core_field(field: &str) -> String {
    let (first, rest) = field.split_once('.').unwrap_or((field, ""));
    let old = NAMES.iter().find(|(_, new)| *new == first).map_or(first, |(old, _)| *old);
    if rest.is_empty() { old.to_owned() } else { format!("{old}.{rest}") }
}

fn rename_fields<'a>(
    mut event: Value,
    names: impl Iterator<Item = (&'a str, &'a str)>,
    version: &str,
) -> Value {
    let Some(fields) = event.as_object_mut() else { return event };
    for (from, to) in names {
        // Zero values that only core Events encode are omitted.
        let kept =
            fields.remove(from).filter(|value| !value.is_null() && *value != json!({}) && *value != "");
        if let Some(value) = kept {
            fields.insert(to.to_owned(), value);
        }
    }
    fields.insert("apiVersion".to_owned(), version.into());
    event
}
