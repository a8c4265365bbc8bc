//! Events, by their old API and their new one: the same facts under two sets of names.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    fields, names,
    time::Time,
};
use serde_json::Value;

use super::{
    check,
    columns::{Heading, Table, since},
    read::{integer, present, text, time},
};
use crate::{registry::Hooks, table::Columns};

const LENGTH_MAX: usize = 128;
const NOTE_LENGTH_MAX: usize = 1024;

/// Where an API keeps what both know.
struct Names {
    about: &'static str,
    controller: &'static str,
    message: &'static str,
    source: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
}

const CORE: Names = Names {
    about: "/involvedObject",
    controller: "/reportingComponent",
    message: "/message",
    source: "/source",
    first: "/firstTimestamp",
    last: "/lastTimestamp",
    count: "/count",
};
const NEW: Names = Names {
    about: "/regarding",
    controller: "/reportingController",
    message: "/note",
    source: "/deprecatedSource",
    first: "/deprecatedFirstTimestamp",
    last: "/deprecatedLastTimestamp",
    count: "/deprecatedCount",
};

const HEADINGS: &[Heading] = &[
    Heading::text("Last Seen"),
    Heading::text("Type"),
    Heading::text("Reason"),
    Heading::text("Object"),
    Heading::wide("Subobject"),
    Heading::wide("Source"),
    Heading::text("Message"),
    Heading::wide("First Seen"),
    Heading::wide("Count"),
    Heading::wide_name(),
];
static CORE_TABLE: Table = Table { headings: HEADINGS, cells: |object, now| cells(object, now, &CORE) };
static NEW_TABLE: Table = Table { headings: HEADINGS, cells: |object, now| cells(object, now, &NEW) };

fn cells(event: &Value, now: Time, names: &Names) -> Vec<Value> {
    let first = time(event, names.first).or_else(|| time(event, "/eventTime"));
    let (last, count) = match present(event, "/series") {
        Some(series) => (time(series, "/lastObservedTime"), integer(series, "/count")),
        // Events of the new API that happened once have no count.
        None => (time(event, names.last).or(first), integer(event, names.count).max(1)),
    };
    let about = |field: &str| text(event, &format!("{}/{field}", names.about));
    let kind = about("kind").to_lowercase();
    let object = if about("name").is_empty() { kind } else { format!("{kind}/{}", about("name")) };
    let source = |field: &str| text(event, &format!("{}/{field}", names.source));
    let either = |one: &str, other: &str| if one.is_empty() { other.to_owned() } else { one.to_owned() };
    let component = either(source("component"), text(event, names.controller));
    let instance = either(source("host"), text(event, "/reportingInstance"));
    let by = if instance.is_empty() { component } else { format!("{component}, {instance}") };
    vec![
        since(last, now).into(),
        text(event, "/type").into(),
        text(event, "/reason").into(),
        object.into(),
        about("fieldPath").into(),
        by.into(),
        text(event, names.message).trim().into(),
        since(first, now).into(),
        count.into(),
        text(event, "/metadata/name").into(),
    ]
}

/// Events of the core API.
pub(super) struct CoreEvent;

impl Hooks for CoreEvent {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        legacy(object, &CORE)
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&CORE_TABLE)
    }

    fn field(&self, object: &Value, path: &str) -> String {
        match path {
            // Where an event comes from is its component, whichever field says it.
            "source" => match text(object, "/source/component") {
                "" => text(object, "/reportingComponent").to_owned(),
                component => component.to_owned(),
            },
            _ => fields::field_text(object, path),
        }
    }
}

/// Events of `events.k8s.io`.
pub(super) struct NewEvent;

impl Hooks for NewEvent {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = legacy(object, &NEW);
        errors.extend(series(object));
        if time(object, "/eventTime").is_none() {
            errors.push(FieldError::required(&FieldPath::root("eventTime"), ""));
        }
        let kind = text(object, "/type");
        if !matches!(kind, "Normal" | "Warning") {
            errors.push(FieldError::invalid(
                &FieldPath::root("type"),
                "",
                format!("has invalid value: {kind}"),
            ));
        }
        let is_set = |pointer: &str| present(object, pointer).is_some_and(|value| *value != 0);
        for (field, holds) in [
            ("firstTimestamp", is_set(NEW.first)),
            ("lastTimestamp", is_set(NEW.last)),
            ("count", is_set(NEW.count)),
            (
                "source",
                ["component", "host"]
                    .iter()
                    .any(|part| !text(object, &format!("{}/{part}", NEW.source)).is_empty()),
            ),
        ] {
            if holds {
                errors.push(FieldError::invalid(&FieldPath::root(field), "", "needs to be unset"));
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        const KEPT: [(&str, &str); 9] = [
            ("regarding", "involvedObject"),
            ("reason", "reason"),
            ("note", "message"),
            ("type", "type"),
            ("eventTime", "eventTime"),
            ("action", "action"),
            ("related", "related"),
            ("reportingController", "reportingController"),
            ("reportingInstance", "reportingInstance"),
        ];
        let value = |object: &Value, field: &str| object.get(field).cloned().unwrap_or_default();
        let changed = KEPT.iter().filter(|(field, _)| value(object, field) != value(old, field));
        changed
            .map(|(field, told)| {
                FieldError::invalid(
                    &FieldPath::root(*told),
                    value(object, field),
                    orlop_api::object_meta::IMMUTABLE,
                )
            })
            .collect()
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&NEW_TABLE)
    }
}

fn series(event: &Value) -> Vec<FieldError> {
    let Some(series) = present(event, "/series") else { return Vec::new() };
    let mut errors = Vec::new();
    if integer(series, "/count") < 2 {
        errors.push(FieldError::invalid(&FieldPath::root("series.count"), "", "should be at least 2"));
    }
    if time(series, "/lastObservedTime").is_none() {
        errors.push(FieldError::required(&FieldPath::root("series.lastObservedTime"), ""));
    }
    errors
}

/// What both APIs ask. An event that says when it happened is held to more.
fn legacy(event: &Value, names: &Names) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let about = text(event, &format!("{}/namespace", names.about));
    let namespace = text(event, "/metadata/namespace");
    let timed = time(event, "/eventTime").is_some();
    let agrees = match (about, timed) {
        ("", false) => matches!(namespace, "" | "default"),
        ("", true) => matches!(namespace, "default" | "kube-system"),
        (about, false) => about == namespace,
        (_, true) => true,
    };
    if !agrees {
        let path = FieldPath::root("involvedObject").child("namespace");
        errors.push(FieldError::invalid(&path, about, "does not match event.namespace"));
    }
    if !timed {
        return errors;
    }
    let controller = text(event, names.controller);
    let path = FieldPath::root(names.controller.trim_start_matches('/'));
    if controller.is_empty() {
        errors.push(FieldError::required(&path, ""));
    }
    errors.extend(check::each(&path, controller, self::names::qualified_name(controller)));
    for field in ["reportingInstance", "action", "reason"] {
        let value = event.get(field).and_then(Value::as_str).unwrap_or_default();
        if value.is_empty() {
            errors.push(FieldError::required(&FieldPath::root(field), ""));
        }
        errors.extend(too_long(field, value, LENGTH_MAX));
    }
    errors.extend(too_long("message", text(event, names.message), NOTE_LENGTH_MAX));
    errors
}

fn too_long(field: &str, value: &str, length_max: usize) -> Option<FieldError> {
    (value.len() > length_max).then(|| {
        FieldError::invalid(&FieldPath::root(field), "", format!("can have at most {length_max} characters"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::check::tests::told, super::columns::tests::row, *};

    #[test]
    fn both_apis_show_the_same_row() {
        let core = json!({"metadata": {"name": "e"}, "type": "Normal", "reason": "R", "message": " m ", "count": 3,
            "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "f"}, "source": {"component": "c", "host": "h"},
            "firstTimestamp": "2026-01-01T00:50:00Z", "lastTimestamp": "2026-01-01T00:59:00Z"});
        let expected = json!(["60s", "Normal", "R", "pod/p", "f", "c, h", "m", "10m", 3, "e"]);
        assert_eq!(row(&CORE_TABLE, &core), expected.as_array().unwrap()[..]);
        let new = json!({"metadata": {"name": "e"}, "type": "Normal", "reason": "R", "note": "m", "eventTime": "2026-01-01T00:50:00.000000Z",
            "regarding": {"kind": "Node"}, "reportingController": "c"});
        let expected = json!(["10m", "Normal", "R", "node", "", "c", "m", "10m", 1, "e"]);
        assert_eq!(row(&NEW_TABLE, &new), expected.as_array().unwrap()[..]);
        let repeated = json!({"series": {"count": 7, "lastObservedTime": "2026-01-01T00:59:30.000000Z"}});
        assert_eq!(row(&CORE_TABLE, &repeated)[0], "30s");
        assert_eq!(row(&CORE_TABLE, &repeated)[8], 7);
        assert_eq!(row(&CORE_TABLE, &json!({}))[0], "<unknown>");
    }

    #[test]
    fn an_old_event_is_in_the_namespace_of_its_object() {
        let event = |namespace: &str, about: &str| json!({"metadata": {"namespace": namespace}, "involvedObject": {"namespace": about}});
        assert!(CoreEvent.validate(&event("a", "a")).is_empty());
        assert!(CoreEvent.validate(&event("default", "")).is_empty());
        assert_eq!(
            told(CoreEvent.validate(&event("a", "b"))),
            [r#"involvedObject.namespace: Invalid value: "b": does not match event.namespace"#]
        );
        assert_eq!(told(CoreEvent.validate(&event("a", ""))).len(), 1);
    }

    #[test]
    fn a_new_event_is_complete() {
        let good = json!({"metadata": {"namespace": "a"}, "regarding": {"namespace": "a"}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "x.y/z", "reportingInstance": "i", "action": "A", "reason": "R", "type": "Normal"});
        assert!(told(NewEvent.validate(&good)).is_empty());
        let mut bad = good.clone();
        bad["type"] = "Odd".into();
        bad["action"] = "x".repeat(129).into();
        bad["reason"] = "".into();
        bad["series"] = json!({"count": 1});
        bad["deprecatedCount"] = 2.into();
        assert_eq!(
            told(NewEvent.validate(&bad)),
            [
                r#"action: Invalid value: "": can have at most 128 characters"#,
                "reason: Required value",
                r#"series.count: Invalid value: "": should be at least 2"#,
                "series.lastObservedTime: Required value",
                r#"type: Invalid value: "": has invalid value: Odd"#,
                r#"count: Invalid value: "": needs to be unset"#,
            ]
        );
        assert_eq!(
            told(NewEvent.validate(&json!({"metadata": {"namespace": "default"}, "type": "Normal"}))),
            ["eventTime: Required value"]
        );
        let mut changed = good.clone();
        changed["note"] = "n".into();
        assert_eq!(
            told(NewEvent.validate_update(&changed, &good)),
            [r#"message: Invalid value: "n": field is immutable"#]
        );
    }

    #[test]
    fn a_source_is_a_component() {
        assert_eq!(CoreEvent.field(&json!({"source": {"component": "c"}}), "source"), "c");
        assert_eq!(CoreEvent.field(&json!({"reportingComponent": "r"}), "source"), "r");
        assert_eq!(CoreEvent.field(&json!({"reason": "R"}), "reason"), "R");
    }
}
