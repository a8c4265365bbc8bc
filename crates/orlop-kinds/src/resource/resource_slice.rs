//! ResourceSlice: devices that a driver offers.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Map, Value};

use super::{counters, device, qualified_names::validate_pool_name};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{flag, integer, list, mark_repeated, present, text},
    core::pod::validate_node_selector,
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    storage::csi_driver::validate_driver_name,
    strategy::{RequestContext, Strategy},
    validation::{validate_dns_subdomain, validate_immutable},
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, tracks_generation: true, ..StrategyFlags::BUILTIN },
    selectable_fields: &["spec.nodeName", "spec.driver", "spec.pool.name"],
    columns: &COLUMNS,
    strategy: &ResourceSlice,
    ..BuiltinKind::new("resource.k8s.io", "resourceslices")
};

const DEVICES_MAX: usize = 128;
/// Maximum number of devices in a slice that has taints or counters.
const ADVANCED_DEVICES_MAX: usize = 64;

pub(crate) struct ResourceSlice;

impl Strategy for ResourceSlice {
    /// A capacity without a value is zero.
    fn set_defaults(&self, object: &mut Value) {
        let Some(spec) = defaulting::object_mut(object, "spec") else { return };
        for device in defaulting::items_mut(spec, "devices") {
            let capacity = device.get_mut("capacity").and_then(Value::as_object_mut);
            for amount in capacity.into_iter().flat_map(Map::values_mut) {
                defaulting::set_if_absent(amount, "value", "0");
            }
        }
    }

    fn prepare_for_create(&self, object: &mut Value, _: &RequestContext<'_>) {
        remove_disabled(object);
    }

    fn prepare_for_update(&self, object: &mut Value, _: &Value, _: &RequestContext<'_>) {
        remove_disabled(object);
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (path, none) = (FieldPath::root("spec"), Value::Null);
        let spec = object.get("spec").unwrap_or(&none);
        let mut errors = match text(spec, "/driver") {
            "" => vec![FieldError::required(&path.child("driver"), "")],
            driver => validate_driver_name(driver, &path.child("driver")),
        };
        errors.extend(validate_pool(spec, &path.child("pool")));
        errors.extend(validate_node_selection(spec, &path));
        let (devices, counter_sets) = (list(spec, "/devices"), list(spec, "/sharedCounters"));
        if !devices.is_empty() && !counter_sets.is_empty() {
            let detail = "only one of `sharedCounters` or `devices` is allowed";
            errors.push(FieldError::invalid(&path, "", detail));
        }
        let is_advanced = devices.iter().any(|device| {
            !list(device, "/taints").is_empty() || !list(device, "/consumesCounters").is_empty()
        });
        let count_max = if is_advanced { ADVANCED_DEVICES_MAX } else { DEVICES_MAX };
        let selects_nodes = flag(spec, "/perDeviceNodeSelection");
        errors.extend(validate_devices(devices, count_max, selects_nodes, &path.child("devices")));
        errors.extend(counters::validate_sets(counter_sets, &path.child("sharedCounters")));
        errors
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        let driver = text(object, "/spec/driver");
        let has_upper_case = driver != driver.to_lowercase();
        let warning = || {
            format!("spec.driver: driver names should be lowercase; {driver:?} contains uppercase characters")
        };
        has_upper_case.then(warning).into_iter().collect()
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let (path, none) = (FieldPath::root("spec"), Value::Null);
        let part = |of: &Value, pointer: &str| of.pointer(pointer).unwrap_or(&none).clone();
        let (new_pool, old_pool) = (part(object, "/spec/pool"), part(old, "/spec/pool"));
        let (new_spec, old_spec) = (part(object, "/spec"), part(old, "/spec"));
        let name = validate_immutable(&new_pool, &old_pool, "name", &path.child("pool"));
        let fields = ["driver", "nodeName"];
        let fields =
            fields.into_iter().filter_map(|field| validate_immutable(&new_spec, &old_spec, field, &path));
        name.into_iter().chain(fields).collect()
    }
}

/// Removes fields of features that are off by default in Kubernetes.
fn remove_disabled(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.remove("skipNodeOperations");
    spec.remove("partitionTypeAttribute");
    let devices = spec.get_mut("devices").and_then(Value::as_array_mut);
    devices.into_iter().flatten().filter_map(Value::as_object_mut).for_each(device::remove_disabled);
}

/// Validates devices with unique names.
fn validate_devices(
    devices: &[Value],
    count_max: usize,
    selects_nodes: bool,
    path: &FieldPath,
) -> Vec<FieldError> {
    if devices.len() > count_max {
        return vec![FieldError::too_many(path, devices.len(), count_max)];
    }
    let each = devices.iter().enumerate();
    let mut errors: Vec<FieldError> =
        each.flat_map(|(index, one)| device::validate(one, selects_nodes, &path.index(index))).collect();
    let repeated = mark_repeated(devices, |device| text(device, "/name")).into_iter().enumerate();
    for (index, _) in repeated.filter(|(_, is_repeated)| *is_repeated) {
        errors.push(FieldError::duplicate(&path.index(index), text(&devices[index], "/name")));
    }
    errors
}

fn validate_pool(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validate_pool_name(text(spec, "/pool/name"), &path.child("name"));
    let (count, generation) = (integer(spec, "/pool/resourceSliceCount"), integer(spec, "/pool/generation"));
    if count <= 0 {
        errors.push(FieldError::invalid(
            &path.child("resourceSliceCount"),
            count,
            "must be greater than zero",
        ));
    }
    if generation < 0 {
        let detail = "must be greater than or equal to zero";
        errors.push(FieldError::invalid(&path.child("generation"), generation, detail));
    }
    errors
}

/// Validates that a slice says in one way which nodes have its devices.
fn validate_node_selection(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    const ONE: &str =
        "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    let (mut errors, mut given) = (Vec::new(), Vec::new());
    match spec.get("nodeName").and_then(Value::as_str) {
        None => {}
        Some("") => {
            let detail = "must be either unset or set to a non-empty string";
            errors.push(FieldError::invalid(&path.child("nodeName"), "", detail));
        }
        Some(name) => {
            given.push("`nodeName`");
            errors.extend(validate_dns_subdomain(name, &path.child("nodeName")));
        }
    }
    if let Some(selector) = present(spec, "/nodeSelector") {
        given.push("`nodeSelector`");
        let path = path.child("nodeSelector");
        errors.extend(validate_node_selector(selector, &path));
        let terms = list(selector, "/nodeSelectorTerms");
        if terms.len() != 1 {
            let detail = "must have exactly one node selector term";
            errors.push(FieldError::invalid(&path.child("nodeSelectorTerms"), terms.to_vec(), detail));
        }
    }
    for (field, quoted) in
        [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        match spec.get(field).and_then(Value::as_bool) {
            None => {}
            Some(true) => given.push(quoted),
            Some(false) => {
                let detail = "must be either unset or set to true";
                errors.push(FieldError::invalid(&path.child(field), false, detail));
            }
        }
    }
    match given.len() {
        0 => errors.push(FieldError::required(path, ONE)),
        1 => {}
        _ => {
            let value = format!("{{{}}}", given.join(", "));
            errors.push(FieldError::invalid(path, value, format!("{ONE}, but multiple fields are set")));
        }
    }
    errors
}

pub(crate) static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Node"),
        ColumnDefinition::text("Driver"),
        ColumnDefinition::text("Pool"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        let field = |pointer| text(object, pointer).into();
        vec![
            name(object),
            field("/spec/nodeName"),
            field("/spec/driver"),
            field("/spec/pool/name"),
            age(object, now),
        ]
    },
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::printer::tests::row;

    #[test]
    fn slices_are_validated() {
        let spec = |fields: Value| {
            let mut spec =
                json!({"driver": "a.b", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n"});
            spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            crate::validation::tests::messages(ResourceSlice.validate(&json!({"spec": spec})))
        };
        assert!(spec(json!({"devices": [{"name": "d", "attributes": {"x": {"int": 1}}}]})).is_empty());
        assert_eq!(
            spec(
                json!({"allNodes": true, "pool": {"name": ""}, "devices": [{"name": "d", "attributes": {"1": {}}},
                {"name": "d"}]})
            ),
            [
                "spec.pool.name: Required value",
                "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
                "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, \
                 `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set",
                "spec.devices[0].attributes: Invalid value: \"1\": a valid C identifier must start with alphabetic \
                 character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or \
                 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')",
                "spec.devices[0].attributes[1]: Invalid value: \"\": must specify one of: `int`, `bool`, `string`, \
                 `version`, `ints`, `bools`, `strings`, `versions`",
                "spec.devices[1]: Duplicate value: \"d\"",
            ]
        );
    }

    #[test]
    fn row_shows_driver_and_pool() {
        let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "p"}}});
        assert_eq!(row(&COLUMNS, &slice), json!(["s", "", "d", "p", "<unknown>"]).as_array().unwrap()[..]);
    }
}
