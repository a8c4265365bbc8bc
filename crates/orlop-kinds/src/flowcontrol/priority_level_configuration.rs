//! PriorityLevelConfiguration: concurrency limits of a priority level.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::{bootstrap, flow_schema::validate_conditions};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{integer, present, text},
    defaulting,
    equality::semantically_equal,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
    update_scope::STATUS_ONLY,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { tracks_generation: true, ..StrategyFlags::BUILTIN },
    update_scopes: STATUS_ONLY,
    columns: &COLUMNS,
    strategy: &PriorityLevelConfiguration,
    ..BuiltinKind::new("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations")
};

const QUEUES_MAX: i64 = 10_000_000;
/// Bits of a flow's hash that a hand of queues may take.
const ENTROPY_BITS_MAX: f64 = 60.0;

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Type"),
        ColumnDefinition::text("NominalConcurrencyShares"),
        ColumnDefinition::text("Queues"),
        ColumnDefinition::text("HandSize"),
        ColumnDefinition::text("QueueLengthLimit"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        let number = |field: &str| {
            let pointer = format!("/spec/limited/{field}");
            present(object, &pointer).cloned().unwrap_or_else(|| "<none>".into())
        };
        vec![
            name(object),
            text(object, "/spec/type").into(),
            number("nominalConcurrencyShares"),
            number("limitResponse/queuing/queues"),
            number("limitResponse/queuing/handSize"),
            number("limitResponse/queuing/queueLengthLimit"),
            age(object, now),
        ]
    },
};

pub(crate) struct PriorityLevelConfiguration;

impl Strategy for PriorityLevelConfiguration {
    fn set_defaults(&self, object: &mut Value) {
        if let Some(limited) = defaulting::object_at_mut(object, "/spec/limited") {
            defaulting::set_if_absent(limited, "nominalConcurrencyShares", 30);
            defaulting::set_if_absent(limited, "lendablePercent", 0);
            if let Some(queuing) = defaulting::object_at_mut(limited, "/limitResponse/queuing") {
                defaulting::set_if_zero(queuing, "handSize", 8);
                defaulting::set_if_zero(queuing, "queues", 64);
                defaulting::set_if_zero(queuing, "queueLengthLimit", 50);
            }
        }
        if let Some(exempt) = defaulting::object_at_mut(object, "/spec/exempt") {
            defaulting::set_if_absent(exempt, "nominalConcurrencyShares", 0);
            defaulting::set_if_absent(exempt, "lendablePercent", 0);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let kind = text(spec, "/type");
        let mut errors = Vec::new();
        if (text(object, "/metadata/name") == "exempt") != (kind == "Exempt") {
            let detail = "must be 'Exempt' if and only if `name` is 'exempt'";
            errors.push(FieldError::invalid(&path.child("type"), kind, detail));
        }
        match (kind, present(spec, "/limited"), present(spec, "/exempt")) {
            ("Exempt", Some(_), _) => {
                errors.push(FieldError::forbidden(
                    &path.child("limited"),
                    "must be nil if the type is not Limited",
                ));
            }
            ("Limited", _, Some(_)) => {
                errors
                    .push(FieldError::forbidden(&path.child("exempt"), "must be nil if the type is Limited"));
            }
            ("Limited", None, _) => {
                errors.push(FieldError::required(&path.child("limited"), "").declaratively());
            }
            ("Limited", Some(limited), None) => {
                errors.extend(self::validate_limited(limited, &path.child("limited")));
            }
            ("Exempt", None, exempt) => {
                let at = path.child("exempt");
                errors.extend(exempt.into_iter().flat_map(|exempt| validate_shares(exempt, &at)));
            }
            (_, limited, _) => {
                if !kind.is_empty() {
                    errors.extend(validation::validate_supported(
                        spec,
                        "type",
                        &path,
                        &["Exempt", "Limited"],
                    ));
                }
                if limited.is_some() {
                    errors.push(FieldError::forbidden(&path.child("limited"), "").declaratively());
                }
                errors.extend(validation::require_text(spec, "type", &path).map(FieldError::declaratively));
            }
        }
        errors.extend(validate_mandatory(object, spec, &path));
        errors.extend(validate_conditions(object));
        errors
    }
}

/// Validates that the spec of a mandatory level is the fixed one. The limits of the exempt level may change.
fn validate_mandatory(object: &Value, spec: &Value, path: &FieldPath) -> Option<FieldError> {
    let name = text(object, "/metadata/name");
    let mut fixed = bootstrap::mandatory_object("PriorityLevelConfiguration", name)?["spec"].take();
    let mut except = "";
    if name == "exempt" {
        fixed["exempt"] = spec.get("exempt").cloned().unwrap_or_default();
        except = " except the 'spec.exempt' field";
    }
    let detail = format!("spec of '{name}'{except} must equal the fixed value");
    (!semantically_equal(spec, &fixed)).then(|| FieldError::invalid(path, spec.clone(), detail))
}

/// Validates the shares and the lendable part of a level.
fn validate_shares(limits: &Value, path: &FieldPath) -> Vec<FieldError> {
    let number = |field: &str| limits.get(field).and_then(Value::as_i64).unwrap_or_default();
    let mut errors = Vec::new();
    let (shares, lendable) = (number("nominalConcurrencyShares"), number("lendablePercent"));
    if shares < 0 {
        let at = path.child("nominalConcurrencyShares");
        errors.push(FieldError::invalid(&at, shares, "must be a non-negative integer"));
    }
    if !(0..=100).contains(&lendable) {
        let at = path.child("lendablePercent");
        errors.push(FieldError::invalid(&at, lendable, "must be between 0 and 100, inclusive"));
    }
    errors
}

fn validate_limited(limited: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validate_shares(limited, path);
    let number = |field: &str| limited.get(field).and_then(Value::as_i64).unwrap_or_default();
    let response = path.child("limitResponse");
    let queuing = present(limited, "/limitResponse/queuing");
    match (text(limited, "/limitResponse/type"), queuing) {
        ("Reject", Some(_)) => {
            let detail = "must be nil if limited.limitResponse.type is not Limited";
            errors.push(FieldError::forbidden(&response.child("queuing"), detail));
        }
        ("Queue", None) => {
            let detail = "must not be empty if limited.limitResponse.type is Limited";
            errors.push(FieldError::required(&response.child("queuing"), detail));
        }
        ("Queue", Some(queuing)) => {
            errors.extend(self::validate_queuing(queuing, &response.child("queuing")));
        }
        ("Reject", None) => {}
        _ => {
            let none = json!({});
            let given = limited.get("limitResponse").unwrap_or(&none);
            errors.extend(validation::require_supported(given, "type", &response, &["Queue", "Reject"]));
        }
    }
    if number("borrowingLimitPercent") < 0 {
        let at = path.child("borrowingLimitPercent");
        let detail = "if specified, must be a non-negative integer";
        errors.push(FieldError::invalid(&at, number("borrowingLimitPercent"), detail));
    }
    errors
}

fn validate_queuing(queuing: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["queueLengthLimit", "queues", "handSize"] {
        let number = queuing.get(field).and_then(Value::as_i64).unwrap_or_default();
        if number <= 0 {
            errors.push(FieldError::invalid(&path.child(field), number, "must be positive"));
        } else if field == "queues" && number > QUEUES_MAX {
            errors.push(FieldError::invalid(
                &path.child(field),
                number,
                format!("must not be greater than {QUEUES_MAX}"),
            ));
        }
    }
    let (hand, queues) = (integer(queuing, "/handSize"), integer(queuing, "/queues"));
    if hand > queues {
        let detail = format!("should not be greater than queues ({queues})");
        errors.push(FieldError::invalid(&path.child("handSize"), hand, detail));
    } else if hand > 0 && ((queues as f64).log2() * hand as f64).ceil() > ENTROPY_BITS_MAX {
        let detail = format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than \
             {ENTROPY_BITS_MAX}"
        );
        errors.push(FieldError::invalid(&path.child("handSize"), hand, detail));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn level_type_and_limits_are_validated() {
        let mut level = json!({"metadata": {"name": "l"}, "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}});
        PriorityLevelConfiguration.set_defaults(&mut level);
        assert!(messages(PriorityLevelConfiguration.validate(&level)).is_empty());
        let expected = json!(["l", "Limited", 30, 64, 8, 50, "<unknown>"]);
        assert_eq!(row(&COLUMNS, &level), expected.as_array().unwrap()[..]);
        assert_eq!(
            messages(PriorityLevelConfiguration.validate(&json!({"spec": {"type": "Limited"}}))),
            ["spec.limited: Required value"]
        );
        assert_eq!(
            messages(PriorityLevelConfiguration.validate(&json!({"spec": {"type": "Exempt"}}))),
            [r#"spec.type: Invalid value: "Exempt": must be 'Exempt' if and only if `name` is 'exempt'"#]
        );
    }

    #[test]
    fn mandatory_levels_and_hands_are_limited() {
        let exempt = |field: &str, value: Value| {
            let mut level = bootstrap::mandatory_object("PriorityLevelConfiguration", "exempt").unwrap();
            level["spec"]["exempt"][field] = value;
            messages(PriorityLevelConfiguration.validate(&level))
        };
        assert!(exempt("nominalConcurrencyShares", json!(5)).is_empty());
        assert_eq!(
            exempt("lendablePercent", json!(101)),
            ["spec.exempt.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive"]
        );
        let mut level = bootstrap::mandatory_object("PriorityLevelConfiguration", "catch-all").unwrap();
        assert!(messages(PriorityLevelConfiguration.validate(&level)).is_empty());
        level["spec"]["limited"]["lendablePercent"] = 1.into();
        let found = messages(PriorityLevelConfiguration.validate(&level));
        assert!(found[0].ends_with("spec of 'catch-all' must equal the fixed value"), "{found:?}");
        let queuing = json!({"queues": 2048, "handSize": 6, "queueLengthLimit": 1});
        assert_eq!(
            messages(validate_queuing(&queuing, &FieldPath::root("q"))),
            [
                "q.handSize: Invalid value: 6: required entropy bits of deckSize 2048 and handSize 6 should not be \
              greater than 60"
            ]
        );
    }
}
