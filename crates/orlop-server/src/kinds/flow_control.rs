//! Flow schemas and priority levels: whose requests wait for whose.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::{
    check,
    columns::{Heading, Table, name},
    fill,
    read::{condition, flag, integer, list, present, text, text_or, texts},
};
use crate::{
    registry::Hooks,
    table::{Columns, age},
};

const PRECEDENCE_MAX: i64 = 10_000;
const QUEUES_MAX: i64 = 10_000_000;
const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

static SCHEMAS: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::text("PriorityLevel"),
        Heading::text("MatchingPrecedence"),
        Heading::text("DistinguisherMethod"),
        Heading::AGE,
        Heading::text("MissingPL"),
    ],
    cells: |object, now| {
        vec![
            name(object),
            text(object, "/spec/priorityLevelConfiguration/name").into(),
            integer(object, "/spec/matchingPrecedence").into(),
            text_or(object, "/spec/distinguisherMethod/type", "<none>").into(),
            age(object, now),
            condition(object, "Dangling").map_or("?", |dangling| text(dangling, "/status")).into(),
        ]
    },
};

static LEVELS: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::text("Type"),
        Heading::text("NominalConcurrencyShares"),
        Heading::text("Queues"),
        Heading::text("HandSize"),
        Heading::text("QueueLengthLimit"),
        Heading::AGE,
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

pub(super) struct FlowSchema;

impl Hooks for FlowSchema {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = fill::child(object, "spec") {
            fill::empty(spec, "matchingPrecedence", 1000);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let precedence = integer(spec, "/matchingPrecedence");
        let mut problems: Vec<String> = Vec::new();
        if precedence <= 0 {
            problems.push("must be a positive value".to_owned());
        }
        if precedence > PRECEDENCE_MAX {
            problems.push(format!("must not be greater than {PRECEDENCE_MAX}"));
        }
        if precedence == 1 && text(object, "/metadata/name") != "exempt" {
            problems.push("only the schema named 'exempt' may have matchingPrecedence 1".to_owned());
        }
        let mut errors = check::each(&path.child("matchingPrecedence"), precedence, problems);
        if let Some(method) = present(spec, "/distinguisherMethod") {
            let methods = ["ByNamespace", "ByUser"];
            if !methods.contains(&text(method, "/type")) {
                let path = path.child("distinguisherMethod").child("type");
                errors.push(FieldError::not_supported(&path, method.clone(), &methods));
            }
        }
        let level = path.child("priorityLevelConfiguration").child("name");
        match text(spec, "/priorityLevelConfiguration/name") {
            "" => errors.push(FieldError::required(&level, "must reference a priority level")),
            name => errors.extend(check::dns_subdomain(name, &level)),
        }
        errors.extend(check::every(spec, "rules", &path, rule));
        errors
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&SCHEMAS)
    }
}

fn rule(rule: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = check::every(rule, "subjects", path, subject);
    if list(rule, "/subjects").is_empty() {
        errors
            .push(FieldError::required(&path.child("subjects"), "subjects must contain at least one value"));
    }
    if list(rule, "/resourceRules").is_empty() && list(rule, "/nonResourceRules").is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(FieldError::required(path, detail));
    }
    errors.extend(check::every(rule, "resourceRules", path, |rule, path| {
        let mut errors = verbs(rule, path);
        for (field, none, told) in [
            ("apiGroups", "resource rules must supply at least one api group", "api groups"),
            ("resources", "resource rules must supply at least one resource", "resources"),
        ] {
            errors.extend(any_or_some(rule, field, none, told, path));
        }
        if list(rule, "/namespaces").is_empty() && !flag(rule, "/clusterScope") {
            let detail = "resource rules that are not cluster scoped must supply at least one namespace";
            errors.push(FieldError::required(&path.child("namespaces"), detail));
        }
        errors
    }));
    errors.extend(check::every(rule, "nonResourceRules", path, |rule, path| {
        let mut errors = verbs(rule, path);
        let none = "nonResourceURLs must contain at least one value";
        errors.extend(any_or_some(rule, "nonResourceURLs", none, "non-resource URLs", path));
        errors
    }));
    errors
}

/// A list that has something, and nothing besides `*`.
fn any_or_some(rule: &Value, field: &str, none: &str, told: &str, path: &FieldPath) -> Option<FieldError> {
    let (values, path) = (texts(rule, &format!("/{field}")), path.child(field));
    if values.is_empty() {
        return Some(FieldError::required(&path, none));
    }
    let detail = format!("if '*' is present, must not specify other {told}");
    (values.len() > 1 && values.contains(&"*")).then(|| FieldError::invalid(&path, json!(values), detail))
}

fn verbs(rule: &Value, path: &FieldPath) -> Vec<FieldError> {
    let verbs = texts(rule, "/verbs");
    let found = any_or_some(rule, "verbs", "verbs must contain at least one value", "verbs", path);
    if found.is_some() || verbs == ["*"] {
        return found.into_iter().collect();
    }
    if verbs.iter().all(|verb| VERBS.contains(verb)) {
        return Vec::new();
    }
    vec![FieldError::not_supported(&path.child("verbs"), json!(verbs), VERBS)]
}

fn subject(subject: &Value, path: &FieldPath) -> Vec<FieldError> {
    const KINDS: [(&str, &str); 3] =
        [("ServiceAccount", "serviceAccount"), ("User", "user"), ("Group", "group")];
    let kind = text(subject, "/kind");
    let Some((_, own)) = KINDS.iter().find(|(known, _)| *known == kind) else {
        return vec![FieldError::not_supported(
            &path.child("kind"),
            kind,
            &["Group", "ServiceAccount", "User"],
        )];
    };
    let mut errors = Vec::new();
    let at = path.child(own);
    match present(subject, &format!("/{own}")) {
        None => {
            errors
                .push(FieldError::required(&at, format!("{own} is required when subject kind is '{kind}'")));
        }
        Some(given) => {
            errors.extend(check::required(given, "name", &at));
            if *own == "serviceAccount" && text(given, "/namespace").is_empty() {
                let detail = "must specify namespace for service account";
                errors.push(FieldError::required(&at.child("namespace"), detail));
            }
        }
    }
    for (other, field) in KINDS.iter().filter(|(known, _)| *known != kind) {
        if present(subject, &format!("/{field}")).is_some() {
            let detail = format!("{field} is forbidden when subject kind is not '{other}'");
            errors.push(FieldError::forbidden(&path.child(field), detail));
        }
    }
    errors
}

pub(super) struct PriorityLevel;

impl Hooks for PriorityLevel {
    fn default(&self, object: &mut Value) {
        if let Some(limited) = fill::at(object, "/spec/limited") {
            fill::absent(limited, "nominalConcurrencyShares", 30);
            fill::absent(limited, "lendablePercent", 0);
            if let Some(queuing) = fill::at(limited, "/limitResponse/queuing") {
                fill::empty(queuing, "handSize", 8);
                fill::empty(queuing, "queues", 64);
                fill::empty(queuing, "queueLengthLimit", 50);
            }
        }
        if let Some(exempt) = fill::at(object, "/spec/exempt") {
            fill::absent(exempt, "nominalConcurrencyShares", 0);
            fill::absent(exempt, "lendablePercent", 0);
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
                let detail = "must not be empty when type is Limited";
                errors.push(FieldError::required(&path.child("limited"), detail));
            }
            ("Limited", Some(limited), None) => errors.extend(self::limited(limited, &path.child("limited"))),
            ("Exempt", None, _) => {}
            _ => errors.extend(check::required_among(spec, "type", &path, &["Exempt", "Limited"])),
        }
        errors
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&LEVELS)
    }
}

fn limited(limited: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let number = |field: &str| limited.get(field).and_then(Value::as_i64).unwrap_or_default();
    if number("nominalConcurrencyShares") < 0 {
        let (at, given) = (path.child("nominalConcurrencyShares"), number("nominalConcurrencyShares"));
        errors.push(FieldError::invalid(&at, given, "must be a non-negative integer"));
    }
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
        ("Queue", Some(queuing)) => errors.extend(self::queuing(queuing, &response.child("queuing"))),
        ("Reject", None) => {}
        _ => {
            let none = json!({});
            let given = limited.get("limitResponse").unwrap_or(&none);
            errors.extend(check::required_among(given, "type", &response, &["Queue", "Reject"]));
        }
    }
    if !(0..=100).contains(&number("lendablePercent")) {
        let at = path.child("lendablePercent");
        errors.push(FieldError::invalid(
            &at,
            number("lendablePercent"),
            "must be between 0 and 100, inclusive",
        ));
    }
    if number("borrowingLimitPercent") < 0 {
        let at = path.child("borrowingLimitPercent");
        let detail = "if specified, must be a non-negative integer";
        errors.push(FieldError::invalid(&at, number("borrowingLimitPercent"), detail));
    }
    errors
}

fn queuing(queuing: &Value, path: &FieldPath) -> Vec<FieldError> {
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
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::{super::check::tests::told, super::columns::tests::row, *};

    #[test]
    fn a_schema_says_whose_requests_it_is_about() {
        let mut schema = json!({"metadata": {"name": "s"}, "spec": {"priorityLevelConfiguration": {"name": "p"}, "rules": [{"subjects": [{"kind": "User", "user": {"name": "u"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true}]}]}});
        FlowSchema.default(&mut schema);
        assert_eq!(schema["spec"]["matchingPrecedence"], 1000);
        assert!(told(FlowSchema.validate(&schema)).is_empty());
        assert_eq!(
            row(&SCHEMAS, &schema),
            json!(["s", "p", 1000, "<none>", "<unknown>", "?"]).as_array().unwrap()[..]
        );
        assert_eq!(
            told(FlowSchema.validate(&json!({"spec": {"matchingPrecedence": 10001, "rules": [{"subjects": [{"kind": "x"}], "resourceRules": [{"verbs": ["do"]}]}]}}))),
            [
                "spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000",
                "spec.priorityLevelConfiguration.name: Required value: must reference a priority level",
                r#"spec.rules[0].subjects[0].kind: Unsupported value: "x": supported values: "Group", "ServiceAccount", "User""#,
                r#"spec.rules[0].resourceRules[0].verbs: Unsupported value: ["do"]: supported values: "create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch""#,
                "spec.rules[0].resourceRules[0].apiGroups: Required value: resource rules must supply at least one api group",
                "spec.rules[0].resourceRules[0].resources: Required value: resource rules must supply at least one resource",
                "spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace",
            ]
        );
    }

    #[test]
    fn a_level_is_exempt_or_limited() {
        let mut level = json!({"metadata": {"name": "l"}, "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {}}}}});
        PriorityLevel.default(&mut level);
        assert!(told(PriorityLevel.validate(&level)).is_empty());
        let expected = json!(["l", "Limited", 30, 64, 8, 50, "<unknown>"]);
        assert_eq!(row(&LEVELS, &level), expected.as_array().unwrap()[..]);
        assert_eq!(
            told(PriorityLevel.validate(&json!({"spec": {"type": "Limited"}}))),
            ["spec.limited: Required value: must not be empty when type is Limited"]
        );
        assert_eq!(
            told(PriorityLevel.validate(&json!({"spec": {"type": "Exempt"}}))),
            [r#"spec.type: Invalid value: "Exempt": must be 'Exempt' if and only if `name` is 'exempt'"#]
        );
    }
}
