//! Devices of a ResourceSlice.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::{Map, Value};

use super::{
    ATTRIBUTE_TEXT_LENGTH_MAX, ATTRIBUTES_AND_CAPACITIES_MAX, binding_conditions, counters, device_capacity,
    device_claim::TAINT_EFFECTS, qualified_names::validate_qualified,
};
use crate::{
    accessors::{flag, list, map, present, text},
    core::pod::validate_node_selector,
    validation::{invalid_for_each, require_supported, validate_dns_label, validate_dns_subdomain},
};

const TAINTS_MAX: usize = 16;
const KINDS_OF_VALUES: [&str; 8] =
    ["int", "bool", "string", "version", "ints", "bools", "strings", "versions"];
const NODE_SELECTION: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when \
                              `perDeviceNodeSelection` is set to true in the ResourceSlice spec";

/// Validates a device. `selects_nodes` says whether each device of the slice names its own nodes.
pub(super) fn validate(device: &Value, selects_nodes: bool, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validate_dns_label(text(device, "/name"), &path.child("name"));
    let (attributes, capacity) = (map(device, "/attributes"), map(device, "/capacity"));
    let count = attributes.len() + capacity.len();
    if count > ATTRIBUTES_AND_CAPACITIES_MAX {
        let detail = format!(
            "the total number of attributes and capacities must not exceed {ATTRIBUTES_AND_CAPACITIES_MAX}"
        );
        errors.push(FieldError::invalid(path, count, detail));
    }
    let at = path.child("attributes");
    for (name, attribute) in attributes {
        errors.extend(validate_qualified(name, &at));
        errors.extend(validate_attribute(attribute, &at.key(name)));
    }
    let (at, is_shared) = (path.child("capacity"), flag(device, "/allowMultipleAllocations"));
    for (name, capacity) in capacity {
        errors.extend(validate_qualified(name, &at));
        errors.extend(device_capacity::validate(capacity, is_shared, &at.key(name)));
    }
    errors.extend(validate_taints(list(device, "/taints"), &path.child("taints")));
    let consumptions = list(device, "/consumesCounters");
    errors.extend(counters::validate_consumptions(consumptions, &path.child("consumesCounters")));
    errors.extend(validate_nodes(device, selects_nodes, path));
    errors.extend(binding_conditions::validate(device, path));
    errors
}

fn validate_attribute(attribute: &Value, path: &FieldPath) -> Vec<FieldError> {
    let quoted =
        |kinds: Vec<&str>| kinds.into_iter().map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(", ");
    let mut errors = Vec::new();
    for field in ["string", "version"] {
        let Some(value) = attribute.get(field).and_then(Value::as_str) else { continue };
        if field == "version" && !is_semantic_version(value) {
            let detail = "must be a string compatible with semver.org spec 2.0.0";
            errors.push(FieldError::invalid(&path.child(field), value, detail));
        }
        if value.len() > ATTRIBUTE_TEXT_LENGTH_MAX {
            errors.push(FieldError::too_long(&path.child(field), ATTRIBUTE_TEXT_LENGTH_MAX));
        }
    }
    let given: Vec<&str> = KINDS_OF_VALUES
        .into_iter()
        .filter(|kind| attribute.get(kind).is_some_and(|v| !v.is_null()))
        .collect();
    let all = quoted(KINDS_OF_VALUES.to_vec());
    match given.len() {
        0 => {
            errors.push(FieldError::invalid(path, "", format!("must specify one of: {all}")).declaratively());
        }
        1 => {}
        _ => {
            let detail = format!("must specify exactly one of: {all}");
            errors
                .push(FieldError::invalid(path, format!("{{{}}}", given.join(", ")), detail).declaratively());
        }
    }
    errors
}

/// Returns true for a version of semver.org: `1.2.3-alpha.1+build.5`.
fn is_semantic_version(text: &str) -> bool {
    let is_numeric = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let is_word = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let (rest, build) = match text.split_once('+') {
        Some((rest, build)) => (rest, Some(build)),
        None => (text, None),
    };
    let (numbers, pre_release) = match rest.split_once('-') {
        Some((numbers, pre_release)) => (numbers, Some(pre_release)),
        None => (rest, None),
    };
    let is_identifier =
        |part: &str| is_word(part) && (is_numeric(part) || part.bytes().any(|byte| !byte.is_ascii_digit()));
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_numeric)
        && pre_release.is_none_or(|parts| parts.split('.').all(is_identifier))
        && build.is_none_or(|parts| parts.split('.').all(is_word))
}

fn validate_taints(taints: &[Value], path: &FieldPath) -> Vec<FieldError> {
    if taints.len() > TAINTS_MAX {
        return vec![FieldError::too_many(path, taints.len(), TAINTS_MAX)];
    }
    let each = taints.iter().enumerate();
    each.flat_map(|(index, taint)| validate_taint(taint, &path.index(index))).collect()
}

/// Validates a taint of a device.
pub(super) fn validate_taint(taint: &Value, path: &FieldPath) -> Vec<FieldError> {
    let (key, value) = (text(taint, "/key"), text(taint, "/value"));
    let mut errors = invalid_for_each(&path.child("key"), key, names::qualified_name(key));
    errors.extend(invalid_for_each(&path.child("value"), value, names::label_value(value)));
    let effect = require_supported(taint, "effect", path, TAINT_EFFECTS);
    errors.extend(effect.map(FieldError::declaratively));
    errors
}

/// Validates the nodes that a device names, in one way.
fn validate_nodes(device: &Value, selects_nodes: bool, path: &FieldPath) -> Vec<FieldError> {
    let (name, selector, all) =
        (present(device, "/nodeName"), present(device, "/nodeSelector"), present(device, "/allNodes"));
    if !selects_nodes {
        if name.or(selector).or(all).is_none() {
            return Vec::new();
        }
        let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to \
                      true in the ResourceSlice spec";
        return vec![FieldError::invalid(path, Value::Null, detail)];
    }
    let (mut errors, mut given) = (Vec::new(), Vec::new());
    match name.and_then(Value::as_str) {
        None => {}
        Some("") => errors.push(FieldError::invalid(&path.child("nodeName"), "", "must not be empty")),
        Some(name) => {
            given.push("`nodeName`");
            errors.extend(validate_dns_subdomain(name, &path.child("nodeName")));
        }
    }
    if let Some(selector) = selector {
        given.push("`nodeSelector`");
        errors.extend(validate_node_selector(selector, &path.child("nodeSelector")));
    }
    match all.and_then(Value::as_bool) {
        None => {}
        Some(true) => given.push("`allNodes`"),
        Some(false) => {
            let detail = "must be either unset or set to true";
            errors.push(FieldError::invalid(&path.child("allNodes"), false, detail));
        }
    }
    match given.len() {
        0 => errors.push(FieldError::required(path, NODE_SELECTION)),
        1 => {}
        _ => errors.push(FieldError::invalid(path, format!("{{{}}}", given.join(", ")), NODE_SELECTION)),
    }
    errors
}

/// Removes fields of features that are off by default in Kubernetes.
pub(super) fn remove_disabled(device: &mut Map<String, Value>) {
    device.remove("nodeAllocatableResources");
    let attributes = device.get_mut("attributes").and_then(Value::as_object_mut);
    for attribute in attributes.into_iter().flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
        for kind in &KINDS_OF_VALUES[4..] {
            attribute.remove(*kind);
        }
    }
    let consumptions = device.get_mut("consumesCounters").and_then(Value::as_array_mut);
    for consumption in consumptions.into_iter().flatten().filter_map(Value::as_object_mut) {
        consumption.remove("compatibilityGroups");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::tests::messages;

    fn errors_of(device: Value) -> Vec<String> {
        messages(validate(&device, false, &FieldPath::root("d")))
    }

    #[test]
    fn attributes_have_one_value() {
        let errors = errors_of(json!({"name": "d", "attributes": {"a": {"int": 1, "bool": true}, "b": {},
            "c": {"version": "1.0"}, "d": {"string": "x".repeat(65)}}}));
        let all = "`int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`";
        assert_eq!(
            errors,
            [
                format!(
                    "d.attributes[a]: Invalid value: \"{{int, bool}}\": must specify exactly one of: {all}"
                ),
                format!("d.attributes[b]: Invalid value: \"\": must specify one of: {all}"),
                "d.attributes[c].version: Invalid value: \"1.0\": must be a string compatible with semver.org spec \
                 2.0.0"
                    .to_owned(),
                "d.attributes[d].string: Too long: may not be more than 64 bytes".to_owned(),
            ]
        );
    }

    #[test]
    fn versions_are_semantic() {
        for good in ["0.0.0", "1.2.3", "1.2.3-alpha.1", "1.2.3-0a", "1.2.3+001", "1.2.3-a-b+c-d.e"] {
            assert!(is_semantic_version(good), "{good}");
        }
        for bad in
            ["", "1", "1.2", "01.2.3", "1.2.3.4", "v1.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3+a..b"]
        {
            assert!(!is_semantic_version(bad), "{bad}");
        }
    }

    #[test]
    fn taints_have_a_key_and_an_effect() {
        let device = |taint: Value| errors_of(json!({"name": "d", "taints": [taint]}));
        assert!(device(json!({"key": "a.b/c", "value": "v", "effect": "NoSchedule"})).is_empty());
        let errors = device(json!({"value": "-", "effect": "Odd"}));
        assert!(errors[0].starts_with("d.taints[0].key: Invalid value: \"\": name part must be non-empty"));
        assert!(errors.iter().any(|error| error.starts_with("d.taints[0].value: Invalid value: \"-\"")));
        assert_eq!(
            errors.last().unwrap(),
            "d.taints[0].effect: Unsupported value: \"Odd\": supported values: \"NoExecute\", \"NoSchedule\", \"None\""
        );
        let many: Vec<Value> = (0..17).map(|_| json!({"key": "k", "effect": "None"})).collect();
        assert_eq!(
            errors_of(json!({"name": "d", "taints": many})),
            ["d.taints: Too many: 17: must have at most 16 items"]
        );
    }

    #[test]
    fn devices_name_nodes_where_the_slice_says_so() {
        let device = |device: Value| messages(validate(&device, true, &FieldPath::root("d")));
        assert!(device(json!({"name": "d", "nodeName": "n"})).is_empty());
        assert_eq!(device(json!({"name": "d"})), [format!("d: Required value: {NODE_SELECTION}")]);
        assert_eq!(
            device(json!({"name": "d", "nodeName": "n", "allNodes": true})),
            [format!("d: Invalid value: \"{{`nodeName`, `allNodes`}}\": {NODE_SELECTION}")]
        );
        assert_eq!(
            errors_of(json!({"name": "d", "allNodes": true})),
            ["d: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if \
                 `perDeviceNodeSelection` is set to true in the ResourceSlice spec"]
        );
    }
}
