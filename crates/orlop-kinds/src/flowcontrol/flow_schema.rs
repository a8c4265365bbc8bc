//! FlowSchema: classifies requests into priority levels.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::{Value, json};

use super::bootstrap;
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{condition, flag, integer, list, present, text, text_or, texts},
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
    strategy: &FlowSchema,
    ..BuiltinKind::new("flowcontrol.apiserver.k8s.io", "flowschemas")
};

const PRECEDENCE_MAX: i64 = 10_000;

const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"];

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("PriorityLevel"),
        ColumnDefinition::text("MatchingPrecedence"),
        ColumnDefinition::text("DistinguisherMethod"),
        ColumnDefinition::AGE,
        ColumnDefinition::text("MissingPL"),
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

pub(crate) struct FlowSchema;

impl Strategy for FlowSchema {
    fn set_defaults(&self, object: &mut Value) {
        if let Some(spec) = defaulting::object_mut(object, "spec") {
            defaulting::set_if_zero(spec, "matchingPrecedence", 1000);
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
        let mut errors =
            validation::invalid_for_each(&path.child("matchingPrecedence"), precedence, problems);
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
            name => errors.extend(validation::validate_dns_subdomain(name, &level)),
        }
        errors.extend(validation::validate_items(spec, "rules", &path, validate_rule));
        let name = text(object, "/metadata/name");
        if let Some(mandatory) = bootstrap::mandatory_object("FlowSchema", name)
            && !semantically_equal(spec, &mandatory["spec"])
        {
            let detail = format!("spec of '{name}' must equal the fixed value");
            errors.push(FieldError::invalid(&path, spec.clone(), detail));
        }
        errors.extend(validate_conditions(object));
        errors
    }
}

/// Validates the conditions of a status.
pub(super) fn validate_conditions(object: &Value) -> Vec<FieldError> {
    let (conditions, path) =
        (list(object, "/status/conditions"), FieldPath::root("status").child("conditions"));
    let mut errors = validation::validate_unique(conditions, "type", &path);
    for (index, condition) in conditions.iter().enumerate() {
        errors.extend(validation::require_text(condition, "type", &path.index(index)));
    }
    errors
}

fn validate_rule(rule: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validation::validate_items(rule, "subjects", path, validate_subject);
    if list(rule, "/subjects").is_empty() {
        errors
            .push(FieldError::required(&path.child("subjects"), "subjects must contain at least one value"));
    }
    if list(rule, "/resourceRules").is_empty() && list(rule, "/nonResourceRules").is_empty() {
        let detail = "at least one of resourceRules and nonResourceRules has to be non-empty";
        errors.push(FieldError::required(path, detail));
    }
    errors.extend(validation::validate_items(rule, "resourceRules", path, |rule, path| {
        let mut errors = validate_verbs(rule, path);
        for (field, none, items) in [
            ("apiGroups", "resource rules must supply at least one api group", "api groups"),
            ("resources", "resource rules must supply at least one resource", "resources"),
        ] {
            errors.extend(validate_wildcard_list(rule, field, none, items, path));
        }
        errors.extend(validate_namespaces(rule, path));
        errors
    }));
    errors.extend(validation::validate_items(rule, "nonResourceRules", path, |rule, path| {
        let mut errors = validate_verbs(rule, path);
        let none = "nonResourceURLs must contain at least one value";
        let found = validate_wildcard_list(rule, "nonResourceURLs", none, "non-resource URLs", path);
        match found {
            Some(error) => errors.push(error),
            None => {
                let urls = texts(rule, "/nonResourceURLs").into_iter().enumerate();
                let at = path.child("nonResourceURLs");
                errors.extend(urls.filter(|(_, url)| *url != "*").filter_map(|(index, url)| {
                    let problem = url_problem(url)?;
                    Some(FieldError::invalid(&at.index(index), url, problem))
                }));
            }
        }
        errors
    }));
    errors
}

fn validate_namespaces(rule: &Value, path: &FieldPath) -> Vec<FieldError> {
    let (namespaces, path) = (texts(rule, "/namespaces"), path.child("namespaces"));
    if namespaces.is_empty() && !flag(rule, "/clusterScope") {
        let detail = "resource rules that are not cluster scoped must supply at least one namespace";
        return vec![FieldError::required(&path, detail)];
    }
    if namespaces.contains(&"*") {
        let detail = "if '*' is present, must not specify other namespaces";
        let others = namespaces.len() > 1;
        return others.then(|| FieldError::invalid(&path, json!(namespaces), detail)).into_iter().collect();
    }
    let mut errors = Vec::new();
    for (index, namespace) in namespaces.into_iter().enumerate() {
        for problem in names::dns1123_label(namespace) {
            let detail = format!("each member of this list must be '*' or a DNS-1123 label; {problem}");
            errors.push(FieldError::invalid(&path.index(index), namespace, detail));
        }
    }
    errors
}

/// Returns the problem of a path, whose only wildcard may be its last segment.
fn url_problem(url: &str) -> Option<&'static str> {
    if url.is_empty() {
        Some("must not be empty")
    } else if url == "/" {
        None
    } else if !url.starts_with('/') {
        Some("must start with slash")
    } else if url.contains(' ') {
        Some("must not contain white-space")
    } else if url.contains("//") {
        Some("must not contain double slash")
    } else if url.contains('*') && (!url.ends_with("/*") || url.matches('*').count() > 1) {
        Some("wildcard can only do suffix matching")
    } else {
        None
    }
}

/// Validates a list that is not empty, and has nothing besides `*`.
fn validate_wildcard_list(
    rule: &Value,
    field: &str,
    none: &str,
    items: &str,
    path: &FieldPath,
) -> Option<FieldError> {
    let (values, path) = (texts(rule, &format!("/{field}")), path.child(field));
    if values.is_empty() {
        return Some(FieldError::required(&path, none));
    }
    let detail = format!("if '*' is present, must not specify other {items}");
    (values.len() > 1 && values.contains(&"*")).then(|| FieldError::invalid(&path, json!(values), detail))
}

fn validate_verbs(rule: &Value, path: &FieldPath) -> Vec<FieldError> {
    let verbs = texts(rule, "/verbs");
    let found = validate_wildcard_list(rule, "verbs", "verbs must contain at least one value", "verbs", path);
    if found.is_some() || verbs == ["*"] {
        return found.into_iter().collect();
    }
    if verbs.iter().all(|verb| VERBS.contains(verb)) {
        return Vec::new();
    }
    vec![FieldError::not_supported(&path.child("verbs"), json!(verbs), VERBS)]
}

fn validate_subject(subject: &Value, path: &FieldPath) -> Vec<FieldError> {
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
            errors.extend(validation::require_text(given, "name", &at));
            if *own == "serviceAccount" {
                if !matches!(text(given, "/name"), "" | "*") {
                    errors
                        .extend(validation::validate_dns_subdomain(text(given, "/name"), &at.child("name")));
                }
                match text(given, "/namespace") {
                    "" => {
                        let detail = "must specify namespace for service account";
                        errors.push(FieldError::required(&at.child("namespace"), detail));
                    }
                    namespace => {
                        errors.extend(validation::validate_dns_label(namespace, &at.child("namespace")));
                    }
                }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn schema_requires_level_subjects_and_rules() {
        let mut schema = json!({"metadata": {"name": "s"}, "spec": {"priorityLevelConfiguration": {"name": "p"}, "rules": [{"subjects": [{"kind": "User", "user": {"name": "u"}}],
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true}]}]}});
        FlowSchema.set_defaults(&mut schema);
        assert_eq!(schema["spec"]["matchingPrecedence"], 1000);
        assert!(messages(FlowSchema.validate(&schema)).is_empty());
        assert_eq!(
            row(&COLUMNS, &schema),
            json!(["s", "p", 1000, "<none>", "<unknown>", "?"]).as_array().unwrap()[..]
        );
        assert_eq!(
            messages(FlowSchema.validate(&json!({"spec": {"matchingPrecedence": 10001, "rules": [{"subjects": [{"kind": "x"}], "resourceRules": [{"verbs": ["do"]}]}]}}))),
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
    fn namespaces_paths_and_accounts_are_validated() {
        let rule = json!({
            "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "A", "name": "b_"}}],
            "resourceRules": [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*", "a"]},
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["a."]}],
            "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["x", "/a//b", "/a*", "/a/*", "/", "/a b"]}]});
        let found = messages(validate_rule(&rule, &FieldPath::root("rules").index(0)));
        let short: Vec<&str> = found.iter().map(|message| message.split(':').next().unwrap()).collect();
        assert_eq!(
            short,
            [
                "rules[0].subjects[0].serviceAccount.name",
                "rules[0].subjects[0].serviceAccount.namespace",
                "rules[0].resourceRules[0].namespaces",
                "rules[0].resourceRules[1].namespaces[0]",
                "rules[0].nonResourceRules[0].nonResourceURLs[0]",
                "rules[0].nonResourceRules[0].nonResourceURLs[1]",
                "rules[0].nonResourceRules[0].nonResourceURLs[2]",
                "rules[0].nonResourceRules[0].nonResourceURLs[5]",
            ],
            "{found:?}"
        );
    }

    #[test]
    fn mandatory_schemas_and_conditions_are_fixed() {
        let mut schema = bootstrap::mandatory_object("FlowSchema", "catch-all").unwrap();
        assert!(messages(FlowSchema.validate(&schema)).is_empty());
        schema["spec"]["matchingPrecedence"] = 9999.into();
        schema["status"] = json!({"conditions": [{"type": "a"}, {"type": "a"}, {}]});
        let found = messages(FlowSchema.validate(&schema));
        assert!(found[0].contains("spec of 'catch-all' must equal the fixed value"), "{found:?}");
        assert_eq!(
            found[1..],
            [
                r#"status.conditions[1].type: Duplicate value: "a""#,
                "status.conditions[2].type: Required value",
            ]
        );
    }
}
