//! Validation of probes and lifecycle hooks.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use crate::{
    accessors::{integer, list, present, text},
    validation,
};

/// Validates the probes of a container.
pub(crate) fn validate_probes(container: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = present(container, &format!("/{field}")) else { continue };
        let path = path.child(field);
        errors.extend(validate_handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], &path));
        for number in
            ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
        {
            errors.extend(validation::validate_non_negative(probe, number, &path));
        }
        errors.extend(validation::validate_positive(probe, "terminationGracePeriodSeconds", &path));
        if field == "readinessProbe" {
            if let Some(seconds) = present(probe, "/terminationGracePeriodSeconds") {
                let path = path.child("terminationGracePeriodSeconds");
                errors.push(FieldError::invalid(
                    &path,
                    seconds.clone(),
                    "must not be set for readinessProbes",
                ));
            }
        } else if integer(probe, "/successThreshold") != 1 {
            let given = integer(probe, "/successThreshold");
            errors.push(FieldError::invalid(&path.child("successThreshold"), given, "must be 1"));
        }
    }
    errors
}

/// Validates lifecycle hooks.
pub(crate) fn validate_lifecycle(container: &Value, grace_seconds: i64, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["postStart", "preStop"] {
        if let Some(hook) = present(container, &format!("/lifecycle/{field}")) {
            let path = path.child("lifecycle").child(field);
            errors.extend(validate_handler(hook, &["exec", "httpGet", "tcpSocket", "sleep"], &path));
            if let Some(sleep) = present(hook, "/sleep") {
                let seconds = integer(sleep, "/seconds");
                if !(0..=grace_seconds).contains(&seconds) {
                    let detail = format!(
                        "must be non-negative and less than terminationGracePeriodSeconds ({grace_seconds})"
                    );
                    errors.push(FieldError::invalid(&path.child("sleep"), seconds, detail));
                }
            }
        }
    }
    errors
}

/// Validates a handler: exactly one of `kinds`.
fn validate_handler(handler: &Value, kinds: &[&str], path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut found = false;
    for kind in kinds {
        let Some(action) = present(handler, &format!("/{kind}")) else { continue };
        let path = path.child(kind);
        if found {
            errors.push(FieldError::forbidden(&path, "may not specify more than 1 handler type"));
            continue;
        }
        found = true;
        match *kind {
            "exec" if list(action, "/command").is_empty() => {
                errors.push(FieldError::required(&path.child("command"), ""));
            }
            "httpGet" => errors.extend(validate_http_get(action, &path)),
            "tcpSocket" | "grpc" => {
                errors.extend(validation::validate_port_number_or_name(
                    action.get("port"),
                    &path.child("port"),
                ));
            }
            _ => {}
        }
    }
    if !found {
        errors.push(FieldError::required(path, "must specify a handler type"));
    }
    errors
}

fn validate_http_get(request: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = validation::require_text(request, "path", path).into_iter().collect();
    errors.extend(validation::validate_port_number_or_name(request.get("port"), &path.child("port")));
    errors.extend(validation::validate_supported(request, "scheme", path, &["HTTP", "HTTPS"]));
    for header in list(request, "/httpHeaders") {
        let name = text(header, "/name");
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            let message = "a valid HTTP header must consist of alphanumeric characters or '-'";
            let detail = names::pattern_message(message, "[-A-Za-z0-9]+", &["X-Header-Name"]);
            errors.push(FieldError::invalid(&path.child("httpHeaders"), name, detail));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    #[test]
    fn probe_requires_one_handler() {
        let validation_errors =
            |probe: Value| messages(validate_probes(&json!({"livenessProbe": probe}), &FieldPath::root("c")));
        assert!(validation_errors(json!({"exec": {"command": ["x"]}, "successThreshold": 1})).is_empty());
        assert_eq!(
            validation_errors(json!({"successThreshold": 1})),
            ["c.livenessProbe: Required value: must specify a handler type"]
        );
        assert_eq!(
            validation_errors(json!({"exec": {}, "httpGet": {}, "successThreshold": 2, "periodSeconds": -1})),
            [
                "c.livenessProbe.exec.command: Required value",
                "c.livenessProbe.httpGet: Forbidden: may not specify more than 1 handler type",
                "c.livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
                "c.livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ]
        );
        assert_eq!(
            validation_errors(
                json!({"httpGet": {"path": "/", "port": 0, "scheme": "X", "httpHeaders": [{"name": "a b"}]}, "successThreshold": 1})
            ),
            [
                "c.livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
                r#"c.livenessProbe.httpGet.scheme: Unsupported value: "X": supported values: "HTTP", "HTTPS""#,
                r#"c.livenessProbe.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"#,
            ]
        );
        let hook = json!({"lifecycle": {"preStop": {}}});
        assert_eq!(
            messages(validate_lifecycle(&hook, 30, &FieldPath::root("c"))),
            ["c.lifecycle.preStop: Required value: must specify a handler type"]
        );
    }
}
