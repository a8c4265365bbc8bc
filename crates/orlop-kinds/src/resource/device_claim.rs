//! Validation of device claims: requests, constraints and configuration of ResourceClaims, their templates and
//! DeviceClasses.

use std::collections::HashSet;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use super::device_expressions;
use crate::{
    accessors::{integer, list, present, text},
    storage::csi_driver::validate_driver_name,
    validation::{
        invalid_for_each, require_supported, validate_dns_label, validate_dns_subdomain, validate_supported,
    },
};

/// Effects of taints of devices.
pub(super) const TAINT_EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

const REQUESTS_MAX: usize = 32;
const SUBREQUESTS_MAX: usize = 8;
const SELECTORS_MAX: usize = 32;
const CONSTRAINTS_MAX: usize = 32;
const CONFIGURATIONS_MAX: usize = 32;
const IDENTIFIER_LENGTH_MAX: usize = 32;
const EXPRESSION_LENGTH_MAX: usize = 10 * 1024;
const PARAMETERS_LENGTH_MAX: usize = 10 * 1024;
const REQUEST_REFERENCE: &str = "must be the name of a request in the claim or the name of a request and a subrequest \
                                 separated by '/'";

/// Validates `devices` of a claim.
pub(super) fn validate_devices(devices: &Value, path: &FieldPath) -> Vec<FieldError> {
    let names = request_names(devices);
    let requests = path.child("requests");
    let mut errors = validate_named(list(devices, "/requests"), REQUESTS_MAX, &requests, validate_request);
    let constraints = path.child("constraints");
    errors.extend(validate_up_to(
        list(devices, "/constraints"),
        CONSTRAINTS_MAX,
        &constraints,
        |one, path| validate_constraint(one, path, &names),
    ));
    let config = path.child("config");
    errors.extend(validate_up_to(list(devices, "/config"), CONFIGURATIONS_MAX, &config, |one, path| {
        let mut errors = validate_references(one, path, &names);
        errors.extend(validate_configuration(one, path));
        errors
    }));
    errors
}

/// Validates selectors and configuration of a class.
pub(super) fn validate_class(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validate_selectors(spec, path);
    if let Some(name) = present(spec, "/extendedResourceName").and_then(Value::as_str)
        && !is_extended_resource_name(name)
    {
        let detail = "must be a valid extended resource name";
        errors.push(FieldError::invalid(&path.child("extendedResourceName"), name, detail).declaratively());
    }
    let config = path.child("config");
    errors.extend(validate_up_to(list(spec, "/config"), CONFIGURATIONS_MAX, &config, validate_configuration));
    errors
}

/// Returns true for a name of a domain other than Kubernetes' own, of which a quota can be kept.
fn is_extended_resource_name(name: &str) -> bool {
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    !is_native
        && !name.starts_with("requests.")
        && names::qualified_name(&format!("requests.{name}")).is_empty()
}

/// Validates each of a list, unless there are too many.
fn validate_up_to(
    items: &[Value],
    count_max: usize,
    path: &FieldPath,
    validate: impl Fn(&Value, &FieldPath) -> Vec<FieldError>,
) -> Vec<FieldError> {
    if items.len() > count_max {
        return vec![FieldError::too_many(path, items.len(), count_max)];
    }
    items.iter().enumerate().flat_map(|(index, item)| validate(item, &path.index(index))).collect()
}

/// Validates each of a list of items with unique names.
pub(super) fn validate_named(
    items: &[Value],
    count_max: usize,
    path: &FieldPath,
    validate: impl Fn(&Value, &FieldPath) -> Vec<FieldError>,
) -> Vec<FieldError> {
    let mut errors = validate_up_to(items, count_max, path, validate);
    if items.len() <= count_max {
        let mut seen = HashSet::new();
        let repeated = items.iter().enumerate().filter(|(_, item)| !seen.insert(text(item, "/name")));
        errors.extend(
            repeated.map(|(index, item)| FieldError::duplicate(&path.index(index), text(item, "/name"))),
        );
    }
    errors
}

fn validate_request(request: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validate_dns_label(text(request, "/name"), &path.child("name"));
    let first_available = list(request, "/firstAvailable");
    match (present(request, "/exactly"), first_available.is_empty()) {
        (None, true) => {
            let detail = "exactly one of `exactly` or `firstAvailable` is required";
            errors.push(FieldError::required(path, detail));
        }
        (Some(_), false) => {
            let detail =
                "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
            errors.push(FieldError::invalid(path, Value::Null, detail));
        }
        (Some(exactly), true) => errors.extend(validate_exact(exactly, &path.child("exactly"))),
        (None, false) => {
            let path = path.child("firstAvailable");
            errors.extend(validate_named(first_available, SUBREQUESTS_MAX, &path, |one, path| {
                let mut errors = validate_dns_label(text(one, "/name"), &path.child("name"));
                errors.extend(validate_exact(one, path));
                errors
            }));
        }
    }
    errors
}

/// Validates what a request of any form says of its devices.
fn validate_exact(request: &Value, path: &FieldPath) -> Vec<FieldError> {
    let class = path.child("deviceClassName");
    let mut errors = match text(request, "/deviceClassName") {
        "" => vec![FieldError::required(&class, "")],
        name => validate_dns_subdomain(name, &class),
    };
    errors.extend(validate_selectors(request, path));
    let count = integer(request, "/count");
    match text(request, "/allocationMode") {
        "All" if count != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            errors.push(FieldError::invalid(&path.child("count"), count, detail));
        }
        "ExactCount" if count <= 0 => {
            errors.push(FieldError::invalid(&path.child("count"), count, "must be greater than zero"));
        }
        _ => errors.extend(validate_supported(request, "allocationMode", path, &["All", "ExactCount"])),
    }
    for (index, toleration) in list(request, "/tolerations").iter().enumerate() {
        errors.extend(validate_toleration(toleration, &path.child("tolerations").index(index)));
    }
    errors
}

fn validate_selectors(of: &Value, path: &FieldPath) -> Vec<FieldError> {
    validate_up_to(list(of, "/selectors"), SELECTORS_MAX, &path.child("selectors"), |selector, path| {
        let cel = path.child("cel");
        match present(selector, "/cel") {
            None => vec![FieldError::required(&cel, "")],
            Some(given) if text(given, "/expression").len() > EXPRESSION_LENGTH_MAX => {
                vec![FieldError::too_long(&cel.child("expression"), EXPRESSION_LENGTH_MAX)]
            }
            Some(given) => {
                let expression = text(given, "/expression");
                let problem = device_expressions::problem(expression);
                let invalid = |why| FieldError::invalid(&cel.child("expression"), expression, why);
                problem.map(invalid).into_iter().collect()
            }
        }
    })
}

fn validate_toleration(toleration: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (key, value) = (text(toleration, "/key"), text(toleration, "/value"));
    if !key.is_empty() {
        errors.extend(invalid_for_each(&path.child("key"), key, names::qualified_name(key)));
    }
    match text(toleration, "/operator") {
        "Exists" if !value.is_empty() => {
            let detail = "must be empty for operator `Exists`";
            errors.push(FieldError::invalid(&path.child("value"), value, detail));
        }
        "Equal" => errors.extend(invalid_for_each(&path.child("value"), value, names::label_value(value))),
        _ => errors.extend(require_supported(toleration, "operator", path, &["Equal", "Exists"])),
    }
    if !text(toleration, "/effect").is_empty() {
        errors.extend(validate_supported(toleration, "effect", path, TAINT_EFFECTS));
    }
    errors
}

/// Names of requests: `request`, and `request/subrequest`.
fn request_names(devices: &Value) -> HashSet<String> {
    let mut names = HashSet::new();
    for request in list(devices, "/requests") {
        let name = text(request, "/name");
        names.insert(name.to_owned());
        let subrequests = list(request, "/firstAvailable").iter();
        names.extend(subrequests.map(|subrequest| format!("{name}/{}", text(subrequest, "/name"))));
    }
    names
}

fn validate_references(of: &Value, path: &FieldPath, names: &HashSet<String>) -> Vec<FieldError> {
    let path = path.child("requests");
    let references = list(of, "/requests");
    let mut errors = validate_up_to(references, REQUESTS_MAX, &path, |reference, path| {
        let name = reference.as_str().unwrap_or_default();
        let unknown = || FieldError::invalid(path, name, REQUEST_REFERENCE);
        if name.matches('/').count() > 1 {
            return vec![unknown()];
        }
        let mut errors: Vec<FieldError> =
            name.split('/').flat_map(|part| validate_dns_label(part, path)).collect();
        if !names.contains(name) {
            errors.push(unknown());
        }
        errors
    });
    let mut seen = HashSet::new();
    let repeated = references.iter().enumerate().filter(|(_, reference)| !seen.insert(reference.as_str()));
    errors.extend(
        repeated.map(|(index, reference)| FieldError::duplicate(&path.index(index), reference.clone())),
    );
    errors
}

fn validate_constraint(constraint: &Value, path: &FieldPath, names: &HashSet<String>) -> Vec<FieldError> {
    let mut errors = validate_references(constraint, path, names);
    let attributes = ["matchAttribute", "distinctAttribute"];
    let given = attributes.into_iter().find_map(|field| Some((field, constraint.get(field)?.as_str()?)));
    match given {
        Some((field, name)) => errors.extend(validate_fully_qualified(name, &path.child(field))),
        None => {
            let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple \
                          fields are set";
            errors.push(FieldError::required(path, detail));
        }
    }
    errors
}

fn validate_fully_qualified(name: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validate_qualified(name, path);
    if !name.contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        errors.push(FieldError::invalid(path, name, detail));
    }
    errors
}

/// Validates the name of an attribute: an identifier, with or without a domain.
pub(super) fn validate_qualified(name: &str, path: &FieldPath) -> Vec<FieldError> {
    match name.split('/').collect::<Vec<_>>()[..] {
        [name] => validate_identifier(name, path),
        [domain, name] => {
            let mut errors = match domain {
                "" => vec![FieldError::invalid(path, "", "the domain must not be empty")],
                domain => validate_driver_name(domain, path),
            };
            errors.extend(match name {
                "" => vec![FieldError::invalid(path, "", "the name must not be empty")],
                name => validate_identifier(name, path),
            });
            errors
        }
        // As in Kubernetes, which overlooks them.
        _ => Vec::new(),
    }
}

fn validate_identifier(name: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if name.len() > IDENTIFIER_LENGTH_MAX {
        errors.push(FieldError::too_long(path, IDENTIFIER_LENGTH_MAX));
    }
    let is_start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_identifier = name.bytes().next().is_some_and(is_start)
        && name.bytes().all(|byte| is_start(byte) || byte.is_ascii_digit());
    if !is_identifier {
        let detail = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
                      alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for \
                      validation is '[A-Za-z_][A-Za-z0-9_]*')";
        errors.push(FieldError::invalid(path, name, detail));
    }
    errors
}

fn validate_configuration(config: &Value, path: &FieldPath) -> Vec<FieldError> {
    let path = path.child("opaque");
    let Some(opaque) = present(config, "/opaque") else { return vec![FieldError::required(&path, "")] };
    let mut errors = match text(opaque, "/driver") {
        "" => vec![FieldError::required(&path.child("driver"), "")],
        driver => validate_driver_name(driver, &path.child("driver")),
    };
    let parameters = path.child("parameters");
    match present(opaque, "/parameters") {
        None => errors.push(FieldError::required(&parameters, "")),
        Some(given) if given.to_string().len() > PARAMETERS_LENGTH_MAX => {
            errors.push(FieldError::too_long(&parameters, PARAMETERS_LENGTH_MAX));
        }
        Some(Value::Object(_)) => {}
        Some(_) => {
            errors.push(FieldError::invalid(&parameters, "<value omitted>", "must be a valid JSON object"));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    fn errors_of(devices: Value) -> Vec<String> {
        messages(validate_devices(&devices, &FieldPath::root("devices")))
    }

    fn request(name: &str) -> Value {
        json!({"name": name, "exactly": {"deviceClassName": "a.b", "allocationMode": "ExactCount", "count": 1}})
    }

    #[test]
    fn requests_are_validated() {
        assert!(errors_of(json!({"requests": [request("a"), request("b")]})).is_empty());
        assert_eq!(
            errors_of(json!({"requests": [request("a"), request("a"), {"name": "c"}]})),
            [
                "devices.requests[2]: Required value: exactly one of `exactly` or `firstAvailable` is required",
                "devices.requests[1]: Duplicate value: \"a\"",
            ]
        );
        let bad = json!({"name": "a", "exactly": {"allocationMode": "All", "count": 2, "selectors": [{}],
            "tolerations": [{"operator": "Exists", "value": "x"}, {"operator": "Odd"}]}});
        assert_eq!(
            errors_of(json!({"requests": [bad]})),
            [
                "devices.requests[0].exactly.deviceClassName: Required value",
                "devices.requests[0].exactly.selectors[0].cel: Required value",
                "devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'",
                "devices.requests[0].exactly.tolerations[0].value: Invalid value: \"x\": must be empty for operator `Exists`",
                "devices.requests[0].exactly.tolerations[1].operator: Unsupported value: \"Odd\": supported values: \"Equal\", \"Exists\"",
            ]
        );
    }

    #[test]
    fn constraints_and_configuration_name_requests() {
        let several = json!({"name": "b", "firstAvailable": [{"name": "one", "deviceClassName": "a.b",
            "allocationMode": "ExactCount", "count": 1}]});
        let devices =
            |constraint: Value| json!({"requests": [request("a"), several], "constraints": [constraint]});
        let fine = json!({"requests": ["a", "b/one"], "matchAttribute": "a.b/c"});
        assert!(errors_of(devices(fine)).is_empty());
        assert_eq!(
            errors_of(devices(json!({"requests": ["x"], "matchAttribute": "c"}))),
            [
                format!("devices.constraints[0].requests[0]: Invalid value: \"x\": {REQUEST_REFERENCE}"),
                "devices.constraints[0].matchAttribute: Invalid value: \"c\": a fully qualified name must be a domain \
                 and a name separated by a slash"
                    .to_owned(),
            ]
        );
        let config = json!({"requests": [request("a")], "config": [{}, {"opaque": {"driver": "a.b", "parameters": [1]}}]});
        assert_eq!(
            errors_of(config),
            [
                "devices.config[0].opaque: Required value",
                "devices.config[1].opaque.parameters: Invalid value: \"<value omitted>\": must be a valid JSON object",
            ]
        );
    }
}
