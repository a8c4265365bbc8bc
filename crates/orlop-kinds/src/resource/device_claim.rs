//! Validation of device claims: requests, constraints and configuration of ResourceClaims, their templates and
//! DeviceClasses.

use std::collections::HashSet;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use super::{
    device_expressions::{self, Problem},
    qualified_names::{declared, declared_driver_name, declared_fully_qualified},
};
use crate::{
    accessors::{integer, list, mark_repeated, present, text},
    validation::{
        invalid_for_each, require_supported, validate_dns_label, validate_dns_subdomain, validate_supported,
    },
};

/// Effects of taints of devices.
pub(super) const TAINT_EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

pub(super) const REQUESTS_MAX: usize = 32;
const SUBREQUESTS_MAX: usize = 8;
const SELECTORS_MAX: usize = 32;
const CONSTRAINTS_MAX: usize = 32;
pub(super) const CONFIGURATIONS_MAX: usize = 32;
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
pub(super) fn validate_up_to(
    items: &[Value],
    count_max: usize,
    path: &FieldPath,
    validate: impl Fn(&Value, &FieldPath) -> Vec<FieldError>,
) -> Vec<FieldError> {
    if items.len() > count_max {
        return vec![FieldError::too_many(path, items.len(), count_max).declaratively()];
    }
    items.iter().enumerate().flat_map(|(index, item)| validate(item, &path.index(index))).collect()
}

/// Validates each of a list of items with unique names.
fn validate_named(
    items: &[Value],
    count_max: usize,
    path: &FieldPath,
    validate: impl Fn(&Value, &FieldPath) -> Vec<FieldError>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if items.len() <= count_max {
        let repeated = mark_repeated(items, |item| text(item, "/name")).into_iter().enumerate();
        let repeated = repeated.filter(|(_, is_repeated)| *is_repeated);
        errors.extend(declared(
            repeated.map(|(index, _)| FieldError::duplicate(&path.index(index), items[index].clone())),
        ));
    }
    errors.extend(validate_up_to(items, count_max, path, validate));
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
        (Some(exactly), true) => {
            errors.extend(validate_class_name(exactly, &path.child("exactly")));
            errors.extend(validate_exact(exactly, &path.child("exactly")));
        }
        (None, false) => {
            let path = path.child("firstAvailable");
            errors.extend(validate_named(first_available, SUBREQUESTS_MAX, &path, |one, path| {
                let mut errors = validate_dns_label(text(one, "/name"), &path.child("name"));
                errors.extend(declared(validate_class_name(one, path)));
                errors.extend(validate_exact(one, path));
                errors
            }));
        }
    }
    errors
}

fn validate_class_name(request: &Value, path: &FieldPath) -> Vec<FieldError> {
    let path = path.child("deviceClassName");
    match text(request, "/deviceClassName") {
        "" => vec![FieldError::required(&path, "")],
        name => validate_dns_subdomain(name, &path),
    }
}

/// Validates what a request of any form says of its devices, but for their class.
fn validate_exact(request: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validate_selectors(request, path);
    let count = integer(request, "/count");
    match text(request, "/allocationMode") {
        "All" if count != 0 => {
            let detail = "must not be specified when allocationMode is 'All'";
            errors.push(FieldError::invalid(&path.child("count"), count, detail));
        }
        "ExactCount" if count <= 0 => {
            errors.push(FieldError::invalid(&path.child("count"), count, "must be greater than zero"));
        }
        _ => errors.extend(declared(validate_supported(
            request,
            "allocationMode",
            path,
            &["All", "ExactCount"],
        ))),
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
                let (expression, at) = (text(given, "/expression"), cel.child("expression"));
                let error = device_expressions::problem(expression).map(|problem| match problem {
                    Problem::Invalid(why) => FieldError::invalid(&at, expression, why),
                    Problem::TooComplex => FieldError::forbidden(&at, "too complex, exceeds cost limit"),
                });
                error.into_iter().collect()
            }
        }
    })
}

pub(super) fn validate_toleration(toleration: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (key, value) = (text(toleration, "/key"), text(toleration, "/value"));
    if !key.is_empty() {
        let problems = names::qualified_name(key);
        errors.extend(declared(invalid_for_each(&path.child("key"), key, problems)));
    }
    match text(toleration, "/operator") {
        "Exists" if !value.is_empty() => {
            let detail = "must be empty for operator `Exists`";
            errors.push(FieldError::invalid(&path.child("value"), value, detail));
        }
        "Equal" => errors.extend(invalid_for_each(&path.child("value"), value, names::label_value(value))),
        "Exists" => {}
        _ => errors.extend(declared(require_supported(toleration, "operator", path, &["Equal", "Exists"]))),
    }
    if !text(toleration, "/effect").is_empty() {
        errors.extend(declared(validate_supported(toleration, "effect", path, TAINT_EFFECTS)));
    }
    errors
}

/// Names of requests: `request`, and `request/subrequest`.
pub(super) fn request_names(devices: &Value) -> HashSet<String> {
    let mut names = HashSet::new();
    for request in list(devices, "/requests") {
        let name = text(request, "/name");
        names.insert(name.to_owned());
        let subrequests = list(request, "/firstAvailable").iter();
        names.extend(subrequests.map(|subrequest| format!("{name}/{}", text(subrequest, "/name"))));
    }
    names
}

/// Validates a list of references to requests.
pub(super) fn validate_references(of: &Value, path: &FieldPath, names: &HashSet<String>) -> Vec<FieldError> {
    let path = path.child("requests");
    let references = list(of, "/requests");
    let mut errors = Vec::new();
    if references.len() <= REQUESTS_MAX {
        let repeated = mark_repeated(references, Value::as_str).into_iter().enumerate();
        let repeated = repeated.filter(|(_, is_repeated)| *is_repeated);
        errors.extend(declared(
            repeated.map(|(index, _)| FieldError::duplicate(&path.index(index), references[index].clone())),
        ));
    }
    errors.extend(validate_up_to(references, REQUESTS_MAX, &path, |reference, path| {
        validate_reference(reference.as_str().unwrap_or_default(), path, names)
    }));
    errors
}

/// Validates a reference to a request or a subrequest.
pub(super) fn validate_reference(name: &str, path: &FieldPath, names: &HashSet<String>) -> Vec<FieldError> {
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
}

fn validate_constraint(constraint: &Value, path: &FieldPath, names: &HashSet<String>) -> Vec<FieldError> {
    let mut errors = validate_references(constraint, path, names);
    let attributes = ["matchAttribute", "distinctAttribute"];
    let given = attributes.into_iter().find_map(|field| Some((field, constraint.get(field)?.as_str()?)));
    match given {
        Some((field, name)) => errors.extend(declared_fully_qualified(name, &path.child(field))),
        None => {
            let detail = "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple \
                          fields are set";
            errors.push(FieldError::required(path, detail));
        }
    }
    errors
}

/// Validates the configuration of a driver.
pub(super) fn validate_configuration(config: &Value, path: &FieldPath) -> Vec<FieldError> {
    let path = path.child("opaque");
    let Some(opaque) = present(config, "/opaque") else { return vec![FieldError::required(&path, "")] };
    let mut errors = declared_driver_name(text(opaque, "/driver"), &path.child("driver"));
    let parameters = opaque.get("parameters").unwrap_or(&Value::Null);
    errors.extend(validate_object(parameters, &path.child("parameters"), PARAMETERS_LENGTH_MAX));
    errors
}

/// Validates that a value without schema is an object, of up to so many bytes.
pub(super) fn validate_object(value: &Value, path: &FieldPath, length_max: usize) -> Option<FieldError> {
    match value {
        Value::Null => Some(FieldError::required(path, "")),
        value if value.to_string().len() > length_max => Some(FieldError::too_long(path, length_max)),
        Value::Object(_) => None,
        _ => Some(FieldError::invalid(path, "<value omitted>", "must be a valid JSON object")),
    }
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
                "devices.requests[1]: Duplicate value: {\"exactly\":{\"allocationMode\":\"ExactCount\",\"count\":1,\
                 \"deviceClassName\":\"a.b\"},\"name\":\"a\"}",
                "devices.requests[2]: Required value: exactly one of `exactly` or `firstAvailable` is required",
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
