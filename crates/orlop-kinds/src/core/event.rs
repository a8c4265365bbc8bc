//! Event of the core group, and what it shares with that of `events.k8s.io`: the same facts under other names.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    fields,
    names::{self, NameRule},
    time::Time,
};
use serde_json::Value;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{integer, present, text, time},
    printer::{ColumnDefinition, PrinterColumns, format_age},
    strategy::Strategy,
    validation,
};

/// Lifetime of an Event, as kube-apiserver's `--event-ttl` has it by default.
pub(crate) const EVENT_TTL_SECONDS: u64 = 3600;

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    name_rule: NameRule::PathSegment,
    flags: StrategyFlags {
        allow_create_on_update: true,
        qualified_finalizers: false,
        validates_metadata_last: true,
        ttl_seconds: Some(EVENT_TTL_SECONDS),
        ..StrategyFlags::BUILTIN
    },
    selectable_fields: &[
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ],
    columns: &COLUMNS,
    strategy: &Event,
    ..BuiltinKind::new("", "events")
};

const LENGTH_MAX: usize = 128;

const NOTE_LENGTH_MAX: usize = 1024;

/// Field names that differ between the two groups.
pub(crate) struct Names {
    pub(crate) about: &'static str,
    pub(crate) controller: &'static str,
    pub(crate) message: &'static str,
    pub(crate) source: &'static str,
    pub(crate) first: &'static str,
    pub(crate) last: &'static str,
    pub(crate) count: &'static str,
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

pub(crate) const DEFINITIONS: &[ColumnDefinition] = &[
    ColumnDefinition::text("Last Seen"),
    ColumnDefinition::text("Type"),
    ColumnDefinition::text("Reason"),
    ColumnDefinition::text("Object"),
    ColumnDefinition::wide("Subobject"),
    ColumnDefinition::wide("Source"),
    ColumnDefinition::text("Message"),
    ColumnDefinition::wide("First Seen"),
    ColumnDefinition::wide("Count"),
    ColumnDefinition::wide_name(),
];

static COLUMNS: PrinterColumns =
    PrinterColumns { definitions: DEFINITIONS, cells: |object, now| cells(object, now, &CORE) };

pub(crate) fn cells(event: &Value, now: Time, names: &Names) -> Vec<Value> {
    let first = time(event, names.first).or_else(|| time(event, "/eventTime"));
    let (last, count) = match present(event, "/series") {
        Some(series) => (time(series, "/lastObservedTime"), integer(series, "/count")),
        // A single event of `events.k8s.io` has no count.
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
        format_age(last, now).into(),
        text(event, "/type").into(),
        text(event, "/reason").into(),
        object.into(),
        about("fieldPath").into(),
        by.into(),
        text(event, names.message).trim().into(),
        format_age(first, now).into(),
        count.into(),
        text(event, "/metadata/name").into(),
    ]
}

pub(crate) struct Event;

impl Strategy for Event {
    /// Events have no dependents.
    fn accepts_propagation_policy(&self, _object: &Value) -> bool {
        false
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate_legacy(object, &CORE)
    }

    fn field_value(&self, object: &Value, path: &str) -> String {
        match path {
            // `source` selects by component, whichever field holds it.
            "source" => match text(object, "/source/component") {
                "" => text(object, "/reportingComponent").to_owned(),
                component => component.to_owned(),
            },
            _ => fields::field_text(object, path),
        }
    }
}

/// Validates what both groups require. An event with an eventTime has to be complete.
pub(crate) fn validate_legacy(event: &Value, names: &Names) -> Vec<FieldError> {
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
    errors.extend(validation::invalid_for_each(&path, controller, self::names::qualified_name(controller)));
    for field in ["reportingInstance", "action", "reason"] {
        let value = event.get(field).and_then(Value::as_str).unwrap_or_default();
        if value.is_empty() {
            errors.push(FieldError::required(&FieldPath::root(field), ""));
        }
        errors.extend(validate_length(field, value, LENGTH_MAX));
    }
    errors.extend(validate_length("message", text(event, names.message), NOTE_LENGTH_MAX));
    errors
}

fn validate_length(field: &str, value: &str, length_max: usize) -> Option<FieldError> {
    (value.len() > length_max).then(|| {
        FieldError::invalid(&FieldPath::root(field), "", format!("can have at most {length_max} characters"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn row_shows_source_count_and_times() {
        let core = json!({"metadata": {"name": "e"}, "type": "Normal", "reason": "R", "message": " m ", "count": 3,
            "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "f"}, "source": {"component": "c", "host": "h"},
            "firstTimestamp": "2026-01-01T00:50:00Z", "lastTimestamp": "2026-01-01T00:59:00Z"});
        let expected = json!(["60s", "Normal", "R", "pod/p", "f", "c, h", "m", "10m", 3, "e"]);
        assert_eq!(row(&COLUMNS, &core), expected.as_array().unwrap()[..]);
        let repeated = json!({"series": {"count": 7, "lastObservedTime": "2026-01-01T00:59:30.000000Z"}});
        assert_eq!(row(&COLUMNS, &repeated)[0], "30s");
        assert_eq!(row(&COLUMNS, &repeated)[8], 7);
        assert_eq!(row(&COLUMNS, &json!({}))[0], "<unknown>");
    }

    #[test]
    fn namespace_must_match_that_of_the_involved_object() {
        let event = |namespace: &str, about: &str| json!({"metadata": {"namespace": namespace}, "involvedObject": {"namespace": about}});
        assert!(Event.validate(&event("a", "a")).is_empty());
        assert!(Event.validate(&event("default", "")).is_empty());
        assert_eq!(
            messages(Event.validate(&event("a", "b"))),
            [r#"involvedObject.namespace: Invalid value: "b": does not match event.namespace"#]
        );
        assert_eq!(messages(Event.validate(&event("a", ""))).len(), 1);
    }

    #[test]
    fn source_field_selects_by_component() {
        assert_eq!(Event.field_value(&json!({"source": {"component": "c"}}), "source"), "c");
        assert_eq!(Event.field_value(&json!({"reportingComponent": "r"}), "source"), "r");
        assert_eq!(Event.field_value(&json!({"reason": "R"}), "reason"), "R");
    }
}
