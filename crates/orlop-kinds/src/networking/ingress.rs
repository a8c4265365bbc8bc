//! Ingress: HTTP routes to services.

use std::net::IpAddr;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{integer, list, map, present, text, text_or, texts},
    printer::{ColumnDefinition, PrinterColumns, age, load_balancer_addresses, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { tracks_generation: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &Ingress,
    ..BuiltinKind::new("networking.k8s.io", "ingresses")
};

const HOSTS_SHOWN: usize = 3;

const CLASS: &str = "kubernetes.io/ingress.class";

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Class"),
        ColumnDefinition::text("Hosts"),
        ColumnDefinition::text("Address"),
        ColumnDefinition::text("Ports"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        let ports = if list(object, "/spec/tls").is_empty() { "80" } else { "80, 443" };
        vec![
            name(object),
            text_or(object, "/spec/ingressClassName", "<none>").into(),
            hosts(list(object, "/spec/rules")).into(),
            load_balancer_addresses(object).into(),
            ports.into(),
            age(object, now),
        ]
    },
};

fn hosts(rules: &[Value]) -> String {
    let mut shown: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules {
        more |= shown.len() == HOSTS_SHOWN;
        let host = text(rule, "/host");
        if !more && !host.is_empty() {
            shown.push(host);
        }
    }
    match shown.is_empty() {
        true => "*".to_owned(),
        false if more => format!("{} + {} more...", shown.join(","), rules.len() - HOSTS_SHOWN),
        false => shown.join(","),
    }
}

pub(crate) struct Ingress;

impl Strategy for Ingress {
    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors = Vec::new();
        if list(spec, "/rules").is_empty() && present(spec, "/defaultBackend").is_none() {
            let detail = "either `defaultBackend` or `rules` must be specified";
            errors.push(FieldError::invalid(&path, Value::Null, detail));
        }
        if let Some(service) = present(spec, "/defaultBackend") {
            errors.extend(validate_backend(service, &path.child("defaultBackend")));
        }
        errors.extend(validation::validate_items(spec, "rules", &path, validate_rule));
        errors.extend(validation::validate_items(spec, "tls", &path, validate_tls));
        if let Some(class) = present(spec, "/ingressClassName").and_then(Value::as_str) {
            errors.extend(validation::validate_dns_subdomain(class, &path.child("ingressClassName")));
        }
        errors
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        if !map(object, "/metadata/annotations").contains_key(CLASS) {
            return Vec::new();
        }
        vec![format!("annotation \"{CLASS}\" is deprecated, please use 'spec.ingressClassName' instead")]
    }
}

fn validate_host(host: &str, path: &FieldPath) -> Vec<FieldError> {
    if !host.contains('*') {
        return validation::validate_dns_subdomain(host, path);
    }
    let valid = host.strip_prefix("*.").is_some_and(|rest| names::dns1123_subdomain(rest).is_empty());
    if valid {
        return Vec::new();
    }
    let message = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, \
                   which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character";
    let pattern = r"\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
    vec![FieldError::invalid(path, host, names::pattern_message(message, pattern, &["*.example.com"]))]
}

fn validate_rule(rule: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let given = text(rule, "/host");
    if !given.is_empty() {
        if given.parse::<IpAddr>().is_ok() {
            let detail = "must be a DNS name, not an IP address";
            errors.push(FieldError::invalid(&path.child("host"), given, detail));
        }
        errors.extend(validate_host(given, &path.child("host")));
    }
    if let Some(http) = present(rule, "/http") {
        let path = path.child("http");
        if list(http, "/paths").is_empty() {
            errors.push(FieldError::required(&path.child("paths"), ""));
        }
        errors.extend(validation::validate_items(http, "paths", &path, validate_http_path));
    }
    errors
}

fn validate_http_path(item: &Value, path: &FieldPath) -> Vec<FieldError> {
    let given = text(item, "/path");
    let at = path.child("path");
    let mut problems: Vec<String> = Vec::new();
    let mut errors = Vec::new();
    match text(item, "/pathType") {
        "" if present(item, "/pathType").is_none() => {
            return vec![FieldError::required(&path.child("pathType"), "pathType must be specified")];
        }
        "Exact" | "Prefix" => {
            if !given.starts_with('/') {
                problems.push("must be an absolute path".to_owned());
            }
            let inside = ["//", "/./", "/../", "%2f", "%2F"];
            problems.extend(
                inside
                    .iter()
                    .filter(|part| given.contains(**part))
                    .map(|part| format!("must not contain '{part}'")),
            );
            let ends = ["/..", "/."];
            problems.extend(
                ends.iter()
                    .filter(|end| given.ends_with(**end))
                    .map(|end| format!("cannot end with '{end}'")),
            );
        }
        "ImplementationSpecific" => {
            if !given.is_empty() && !given.starts_with('/') {
                problems.push("must be an absolute path".to_owned());
            }
        }
        other => {
            let kinds = ["Exact", "ImplementationSpecific", "Prefix"];
            errors.push(FieldError::not_supported(&path.child("pathType"), other, &kinds));
        }
    }
    errors.extend(validation::invalid_for_each(&at, given, problems));
    errors.extend(validate_backend(item.get("backend").unwrap_or(&Value::Null), &path.child("backend")));
    errors
}

fn validate_backend(backend: &Value, path: &FieldPath) -> Vec<FieldError> {
    let service = match (present(backend, "/service"), present(backend, "/resource")) {
        (Some(_), Some(_)) => {
            return vec![FieldError::invalid(path, "", "cannot set both resource and service backends")];
        }
        (None, Some(resource)) => return validate_typed_reference(resource, &path.child("resource")),
        (None, None) => {
            return vec![FieldError::invalid(path, "", "resource or service backend is required")];
        }
        (Some(service), None) => service,
    };
    let at = path.child("service");
    let mut errors = match text(service, "/name") {
        "" => vec![FieldError::required(&at.child("name"), "")],
        name => validation::validate_dns_label(name, &at.child("name")),
    };
    match (text(service, "/port/name"), integer(service, "/port/number")) {
        ("", 0) => errors.push(FieldError::required(path, "port name or number is required")),
        ("", number) => {
            errors.extend(validation::invalid_for_each(
                &at.child("port").child("number"),
                number,
                validation::port_number_problems(number),
            ));
        }
        (name, 0) => {
            errors.extend(validation::invalid_for_each(
                &at.child("port").child("name"),
                name,
                validation::port_name_problems(name),
            ));
        }
        _ => errors.push(FieldError::invalid(path, "", "cannot set both port name & port number")),
    }
    errors
}

/// Validates a TypedLocalObjectReference.
pub(crate) fn validate_typed_reference(reference: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(group) = present(reference, "/apiGroup").and_then(Value::as_str) {
        errors.extend(validation::validate_dns_subdomain(group, &path.child("apiGroup")));
    }
    for field in ["kind", "name"] {
        match reference.get(field).and_then(Value::as_str).unwrap_or_default() {
            "" => errors.push(FieldError::required(&path.child(field), "")),
            given => errors.extend(validation::invalid_for_each(
                &path.child(field),
                given,
                names::path_segment(given),
            )),
        }
    }
    errors
}

fn validate_tls(tls: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, given) in texts(tls, "/hosts").into_iter().enumerate() {
        errors.extend(validate_host(given, &path.child("hosts").index(index)));
    }
    let secret = text(tls, "/secretName");
    if !secret.is_empty() {
        errors.extend(validation::validate_dns_subdomain(secret, &path.child("secretName")));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    fn validation_errors(spec: Value) -> Vec<String> {
        messages(Ingress.validate(&json!({"spec": spec})))
    }

    #[test]
    fn ingress_rules_require_valid_hosts_paths_and_backends() {
        let service = json!({"service": {"name": "s", "port": {"number": 80}}});
        let path = |kind: &str, path: &str| json!({"rules": [{"http": {"paths": [{"path": path, "pathType": kind, "backend": service}]}}]});
        assert!(validation_errors(path("Prefix", "/a")).is_empty());
        assert!(validation_errors(json!({"defaultBackend": service})).is_empty());
        assert_eq!(
            validation_errors(json!({})),
            ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]
        );
        assert_eq!(
            validation_errors(json!({"rules": [{"http": {"paths": [{"path": "/", "backend": service}]}}]})),
            ["spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"]
        );
        assert_eq!(
            validation_errors(path("x", "/")),
            [
                r#"spec.rules[0].http.paths[0].pathType: Unsupported value: "x": supported values: "Exact", "ImplementationSpecific", "Prefix""#
            ]
        );
        assert_eq!(
            validation_errors(path("Exact", "a//b")),
            [
                r#"spec.rules[0].http.paths[0].path: Invalid value: "a//b": must be an absolute path"#,
                r#"spec.rules[0].http.paths[0].path: Invalid value: "a//b": must not contain '//'"#
            ]
        );
        assert_eq!(
            validation_errors(json!({"defaultBackend": {"service": {"name": "s"}}})),
            ["spec.defaultBackend: Required value: port name or number is required"]
        );
        assert_eq!(
            validation_errors(json!({"defaultBackend": {}})),
            [r#"spec.defaultBackend: Invalid value: "": resource or service backend is required"#]
        );
        assert_eq!(
            validation_errors(json!({"rules": [{"host": "10.0.0.1"}]})),
            [r#"spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address"#]
        );
        assert_eq!(validation_errors(json!({"rules": [{"host": "*"}]})).len(), 1);
        assert!(validation_errors(json!({"rules": [{"host": "*.a.b"}]})).is_empty());
    }

    #[test]
    fn row_shows_hosts_and_address() {
        let hosts: Vec<Value> = (0..5).map(|n| json!({"host": format!("h{n}")})).collect();
        let ingress = json!({"metadata": {"name": "i"}, "spec": {"rules": hosts, "tls": [{}]}, "status": {"loadBalancer": {"ingress": [{"ip": "1.1.1.1"}]}}});
        assert_eq!(
            row(&COLUMNS, &ingress),
            ["i", "<none>", "h0,h1,h2 + 2 more...", "1.1.1.1", "80, 443", "<unknown>"]
        );
        assert_eq!(row(&COLUMNS, &json!({}))[2], "*");
    }
}
