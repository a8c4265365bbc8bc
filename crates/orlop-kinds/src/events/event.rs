//! Event of `events.k8s.io`, stored as a core Event.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    object_meta::{self, MetaRules},
};
use serde_json::Value;

use super::conversion;
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{integer, present, text, time},
    core::event::{DEFINITIONS, EVENT_TTL_SECONDS, Names, cells, validate_legacy},
    printer::PrinterColumns,
    strategy::Strategy,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags {
        allow_create_on_update: true,
        validates_metadata_last: true,
        ttl_seconds: Some(EVENT_TTL_SECONDS),
        ..StrategyFlags::BUILTIN
    },
    selectable_fields: &[
        "regarding.kind",
        "regarding.namespace",
        "regarding.name",
        "regarding.uid",
        "regarding.apiVersion",
        "regarding.resourceVersion",
        "regarding.fieldPath",
        "reason",
        "reportingController",
        "type",
    ],
    columns: &COLUMNS,
    strategy: &Event,
    conversion: Some(&conversion::CONVERSION),
    ..BuiltinKind::new("events.k8s.io", "events")
};

const NAMES: Names = Names {
    about: "/regarding",
    controller: "/reportingController",
    message: "/note",
    source: "/deprecatedSource",
    first: "/deprecatedFirstTimestamp",
    last: "/deprecatedLastTimestamp",
    count: "/deprecatedCount",
};

static COLUMNS: PrinterColumns =
    PrinterColumns { definitions: DEFINITIONS, cells: |object, now| cells(object, now, &NAMES) };

pub(crate) struct Event;

impl Strategy for Event {
    /// Events have no dependents.
    fn accepts_propagation_policy(&self, _object: &Value) -> bool {
        false
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = validate_legacy(object, &NAMES);
        // After the facts that the core group requires, and before the others.
        let rules = MetaRules { namespaced: true, name: KIND.name_rule };
        errors.extend(object_meta::validate(object_meta::of(object), rules, &FieldPath::root("metadata")));
        errors.extend(validate_series(object));
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
            ("firstTimestamp", is_set(NAMES.first)),
            ("lastTimestamp", is_set(NAMES.last)),
            ("count", is_set(NAMES.count)),
            (
                "source",
                ["component", "host"]
                    .iter()
                    .any(|part| !text(object, &format!("{}/{part}", NAMES.source)).is_empty()),
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
            .map(|(field, reported_as)| {
                FieldError::invalid(
                    &FieldPath::root(*reported_as),
                    value(object, field),
                    orlop_api::object_meta::IMMUTABLE,
                )
            })
            .collect()
    }
}

fn validate_series(event: &Value) -> Vec<FieldError> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn new_event_requires_all_fields() {
        let good = json!({"metadata": {"name": "e", "namespace": "a"}, "regarding": {"namespace": "a"}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "x.y/z", "reportingInstance": "i", "action": "A", "reason": "R", "type": "Normal"});
        assert!(messages(Event.validate(&good)).is_empty());
        let mut bad = good.clone();
        bad["type"] = "Odd".into();
        bad["action"] = "x".repeat(129).into();
        bad["reason"] = "".into();
        bad["series"] = json!({"count": 1});
        bad["deprecatedCount"] = 2.into();
        assert_eq!(
            messages(Event.validate(&bad)),
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
            messages(Event.validate(&json!({"metadata": {"namespace": "default"}, "type": "Normal"}))),
            ["metadata.name: Required value: name or generateName is required", "eventTime: Required value"]
        );
        let mut changed = good.clone();
        changed["note"] = "n".into();
        assert_eq!(
            messages(Event.validate_update(&changed, &good)),
            [r#"message: Invalid value: "n": field is immutable"#]
        );
    }

    #[test]
    fn row_matches_that_of_a_core_event() {
        let event = json!({"metadata": {"name": "e"}, "type": "Normal", "reason": "R", "note": "m", "eventTime": "2026-01-01T00:50:00.000000Z",
            "regarding": {"kind": "Node"}, "reportingController": "c"});
        let expected = json!(["10m", "Normal", "R", "node", "", "c", "m", "10m", 1, "e"]);
        assert_eq!(row(&COLUMNS, &event), expected.as_array().unwrap()[..]);
    }
}
