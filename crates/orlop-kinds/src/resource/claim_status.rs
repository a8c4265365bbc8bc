//! Status of ResourceClaims: the allocation, its consumers, and what drivers report of its devices.

use std::collections::HashSet;

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::{
    binding_conditions,
    device_claim::{
        CONFIGURATIONS_MAX, REQUESTS_MAX, request_names, validate_configuration, validate_object,
        validate_reference, validate_references, validate_toleration, validate_up_to,
    },
    qualified_names::{
        declared, declared_driver_name, declared_pool_name, declared_uuid, validate_pool_name,
    },
};
use crate::{
    accessors::{is_terminating, list, mark_repeated, present, text},
    core::pod::validate_node_selector,
    defaulting,
    equality::semantically_equal,
    storage::csi_driver::validate_driver_name,
    validation::{
        conditions::validate_conditions, ip::validate_interface_address, require_supported, require_text,
        validate_dns_label,
    },
};

const CONSUMERS_MAX: usize = 256;
const CONDITIONS_MAX: usize = 8;
const DATA_LENGTH_MAX: usize = 10 * 1024;
const ADDRESSES_MAX: usize = 16;
const INTERFACE_NAME_LENGTH_MAX: usize = 256;
const HARDWARE_ADDRESS_LENGTH_MAX: usize = 128;

/// Identity of an allocated device, or of a share of one.
type DeviceId<'a> = [&'a str; 4];

fn device_id(of: &Value) -> DeviceId<'_> {
    ["/driver", "/pool", "/device", "/shareID"].map(|pointer| text(of, pointer))
}

fn allocated_devices(claim: &Value) -> HashSet<DeviceId<'_>> {
    list(claim, "/status/allocation/devices/results").iter().map(device_id).collect()
}

/// Validates the change of a status.
pub(super) fn validate(claim: &Value, old: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("status");
    let (allocation, old_allocation) =
        (present(claim, "/status/allocation"), present(old, "/status/allocation"));
    let (consumers, at) = (list(claim, "/status/reservedFor"), path.child("reservedFor"));
    let mut errors = validate_unique(consumers, CONSUMERS_MAX, &at, |consumer| text(consumer, "/uid"));
    errors.extend(validate_up_to(consumers, CONSUMERS_MAX, &at, |consumer, path| {
        let required = ["resource", "name", "uid"];
        required.into_iter().filter_map(|field| require_text(consumer, field, path)).collect()
    }));
    errors.extend(validate_devices(claim, &path.child("devices")));
    if !consumers.is_empty() {
        let before = list(old, "/status/reservedFor");
        if allocation.is_none() {
            let detail = "may not be specified when `allocated` is not set";
            errors.push(FieldError::forbidden(&at, detail));
        } else if is_terminating(claim) && consumers.iter().any(|consumer| !before.contains(consumer)) {
            let detail =
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.push(FieldError::forbidden(&at, detail));
        }
    }
    let at = path.child("allocation");
    match (allocation, old_allocation) {
        (Some(new), Some(old)) if !semantically_equal(new, old) => {
            let detail = "field cannot be modified once set";
            errors.push(FieldError::invalid(&at, Value::Null, detail).declaratively());
        }
        (Some(new), None) => errors.extend(validate_allocation(claim, new, &at)),
        _ => {}
    }
    errors
}

/// Returns an error for each item whose key another one before it has.
fn validate_unique<'a, K: Eq + std::hash::Hash>(
    items: &'a [Value],
    count_max: usize,
    path: &FieldPath,
    key: impl Fn(&'a Value) -> K,
) -> Vec<FieldError> {
    if items.len() > count_max {
        return Vec::new();
    }
    let repeated = mark_repeated(items, key).into_iter().enumerate().filter(|(_, is_repeated)| *is_repeated);
    declared(repeated.map(|(index, _)| FieldError::duplicate(&path.index(index), items[index].clone())))
}

fn validate_allocation(claim: &Value, allocation: &Value, path: &FieldPath) -> Vec<FieldError> {
    let names = request_names(claim.pointer("/spec/devices").unwrap_or(&Value::Null));
    let devices = path.child("devices");
    let results = list(allocation, "/devices/results");
    let mut errors = validate_up_to(results, REQUESTS_MAX, &devices.child("results"), |result, path| {
        validate_result(result, path, &names)
    });
    let (config, at) = (list(allocation, "/devices/config"), devices.child("config"));
    errors.extend(validate_up_to(config, 2 * CONFIGURATIONS_MAX, &at, |config, path| {
        let source = require_supported(config, "source", path, &["FromClaim", "FromClass"]);
        let mut errors = declared(source);
        errors.extend(validate_references(config, path, &names));
        errors.extend(validate_configuration(config, path));
        errors
    }));
    if let Some(selector) = present(allocation, "/nodeSelector") {
        errors.extend(validate_node_selector(selector, &path.child("nodeSelector")));
    }
    errors
}

fn validate_result(result: &Value, path: &FieldPath, names: &HashSet<String>) -> Vec<FieldError> {
    let mut errors = validate_reference(text(result, "/request"), &path.child("request"), names);
    errors.extend(declared_driver_name(text(result, "/driver"), &path.child("driver")));
    errors.extend(declared_pool_name(text(result, "/pool"), &path.child("pool")));
    errors.extend(validate_dns_label(text(result, "/device"), &path.child("device")));
    errors.extend(binding_conditions::validate(result, path));
    for (index, toleration) in list(result, "/tolerations").iter().enumerate() {
        errors.extend(validate_toleration(toleration, &path.child("tolerations").index(index)));
    }
    errors.extend(validate_share(result, path));
    errors
}

fn validate_share(of: &Value, path: &FieldPath) -> Option<FieldError> {
    let share = present(of, "/shareID").and_then(Value::as_str)?;
    declared_uuid(share, &path.child("shareID"))
}

/// Validates what drivers report of allocated devices.
fn validate_devices(claim: &Value, path: &FieldPath) -> Vec<FieldError> {
    let (devices, allocated) = (list(claim, "/status/devices"), allocated_devices(claim));
    let mut errors = Vec::new();
    let repeated = mark_repeated(devices, device_id).into_iter().zip(devices).enumerate();
    for (index, (_, device)) in repeated.filter(|(_, (is_repeated, _))| *is_repeated) {
        let mut shown = device.clone();
        // Go shows a list that is not set.
        defaulting::set_if_absent(&mut shown, "conditions", Value::Null);
        errors.push(FieldError::duplicate(&path.index(index), shown).declaratively());
    }
    for (index, device) in devices.iter().enumerate() {
        errors.extend(validate_device(device, &path.index(index), &allocated));
    }
    errors
}

fn validate_device(device: &Value, path: &FieldPath, allocated: &HashSet<DeviceId<'_>>) -> Vec<FieldError> {
    let mut errors = validate_driver_name(text(device, "/driver"), &path.child("driver"));
    errors.extend(validate_pool_name(text(device, "/pool"), &path.child("pool")));
    errors.extend(validate_dns_label(text(device, "/device"), &path.child("device")));
    errors.extend(validate_share(device, path));
    if !allocated.contains(&device_id(device)) {
        let [driver, pool, name, share] = device_id(device);
        let identity = json!({"Driver": driver, "Pool": pool, "Device": name, "ShareID": share});
        errors.push(FieldError::invalid(path, identity, "must be an allocated device in the claim"));
    }
    let (conditions, at) = (list(device, "/conditions"), path.child("conditions"));
    if conditions.len() > CONDITIONS_MAX {
        errors.push(FieldError::too_many(&at, conditions.len(), CONDITIONS_MAX));
    }
    errors.extend(validate_conditions(conditions, &at));
    if let Some(data) = present(device, "/data") {
        errors.extend(validate_object(data, &path.child("data"), DATA_LENGTH_MAX));
    }
    if let Some(network) = present(device, "/networkData") {
        errors.extend(validate_network(network, &path.child("networkData")));
    }
    errors
}

fn validate_network(network: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (addresses, at) = (list(network, "/ips"), path.child("ips"));
    errors.extend(validate_length(network, "interfaceName", INTERFACE_NAME_LENGTH_MAX, path));
    errors.extend(validate_unique(addresses, ADDRESSES_MAX, &at, Value::as_str));
    errors.extend(validate_length(network, "hardwareAddress", HARDWARE_ADDRESS_LENGTH_MAX, path));
    errors.extend(validate_up_to(addresses, ADDRESSES_MAX, &at, |address, path| {
        validate_interface_address(address.as_str().unwrap_or_default(), path)
    }));
    errors
}

fn validate_length(of: &Value, field: &str, length_max: usize, path: &FieldPath) -> Option<FieldError> {
    let is_longer = text(of, &format!("/{field}")).len() > length_max;
    is_longer.then(|| FieldError::too_long(&path.child(field), length_max).declaratively())
}

/// Removes the status of devices that are no longer allocated, and fields of features that are off in Kubernetes.
pub(super) fn prepare(claim: &mut Value, old: &Value) {
    let results = claim.pointer_mut("/status/allocation/devices/results").and_then(Value::as_array_mut);
    for result in results.into_iter().flatten().filter_map(Value::as_object_mut) {
        result.remove("skipNodeOperations");
    }
    let kept = allocated_devices(claim);
    let removed: HashSet<[String; 4]> = allocated_devices(old)
        .into_iter()
        .filter(|device| !kept.contains(device))
        .map(|device| device.map(str::to_owned))
        .collect();
    let Some(status) = claim.get_mut("status").and_then(Value::as_object_mut) else { return };
    if let Some(devices) = status.get_mut("devices").and_then(Value::as_array_mut) {
        devices.retain(|device| !removed.contains(&device_id(device).map(str::to_owned)));
        if devices.is_empty() {
            status.remove("devices");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::tests::messages;

    fn claim(status: Value) -> Value {
        let request = |name: &str| json!({"name": name, "exactly": {"deviceClassName": "a.b"}});
        json!({"spec": {"devices": {"requests": [request("a"), request("b")]}}, "status": status})
    }

    fn result(request: &str) -> Value {
        json!({"request": request, "driver": "dra.example.com", "pool": "p", "device": "d"})
    }

    fn errors(status: Value, old: Value) -> Vec<String> {
        messages(validate(&claim(status), &claim(old)))
    }

    fn allocation(result: Value) -> Value {
        json!({"devices": {"results": [result]}})
    }

    #[test]
    fn allocation_names_requests_and_devices() {
        assert!(errors(json!({"allocation": allocation(result("a"))}), json!({})).is_empty());
        let bad = json!({"request": "x", "driver": "", "pool": "", "device": "D", "shareID": "x",
            "bindingConditions": ["a"], "tolerations": [{"operator": "Odd"}]});
        assert_eq!(
            errors(json!({"allocation": allocation(bad)}), json!({})),
            [
                "status.allocation.devices.results[0].request: Invalid value: \"x\": must be the name of a request in \
                 the claim or the name of a request and a subrequest separated by '/'",
                "status.allocation.devices.results[0].driver: Required value",
                "status.allocation.devices.results[0].pool: Required value",
                "status.allocation.devices.results[0].device: Invalid value: \"D\": a lowercase RFC 1123 label must \
                 consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric \
                 character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                "status.allocation.devices.results[0].bindingFailureConditions: Invalid value: null: \
                 bindingFailureConditions are required to use bindingConditions",
                "status.allocation.devices.results[0].tolerations[0].operator: Unsupported value: \"Odd\": supported \
                 values: \"Equal\", \"Exists\"",
                "status.allocation.devices.results[0].shareID: Invalid value: \"x\": must be a lowercase UUID in \
                 8-4-4-4-12 format",
            ]
        );
        let config = json!({"devices": {"config": [{"source": "Odd", "requests": ["x", "a"]}]}});
        assert_eq!(
            errors(json!({"allocation": config}), json!({})),
            [
                "status.allocation.devices.config[0].source: Unsupported value: \"Odd\": supported values: \"FromClaim\", \
                 \"FromClass\"",
                "status.allocation.devices.config[0].requests[0]: Invalid value: \"x\": must be the name of a request in \
                 the claim or the name of a request and a subrequest separated by '/'",
                "status.allocation.devices.config[0].opaque: Required value",
            ]
        );
    }

    #[test]
    fn allocation_is_set_once() {
        let (one, other) = (allocation(result("a")), allocation(result("b")));
        assert!(errors(json!({"allocation": one}), json!({"allocation": one})).is_empty());
        assert!(errors(json!({}), json!({"allocation": one})).is_empty());
        assert_eq!(
            errors(json!({"allocation": other}), json!({"allocation": one})),
            ["status.allocation: Invalid value: null: field cannot be modified once set"]
        );
    }

    #[test]
    fn consumers_need_an_allocation() {
        let consumer = |uid: &str| json!({"resource": "pods", "name": "p", "uid": uid});
        let allocated =
            |consumers: Value| json!({"allocation": allocation(result("a")), "reservedFor": consumers});
        assert!(errors(allocated(json!([consumer("1"), consumer("2")])), json!({})).is_empty());
        assert_eq!(
            errors(json!({"reservedFor": [{}]}), json!({})),
            [
                "status.reservedFor[0].resource: Required value",
                "status.reservedFor[0].name: Required value",
                "status.reservedFor[0].uid: Required value",
                "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
            ]
        );
        assert_eq!(
            errors(allocated(json!([consumer("1"), consumer("1")])), json!({})),
            ["status.reservedFor[1]: Duplicate value: {\"name\":\"p\",\"resource\":\"pods\",\"uid\":\"1\"}"]
        );
        let many: Vec<Value> = (0..257).map(|uid| consumer(&uid.to_string())).collect();
        assert_eq!(
            errors(allocated(json!(many)), json!({})),
            ["status.reservedFor: Too many: 257: must have at most 256 items"]
        );
        let mut terminating = claim(allocated(json!([consumer("1"), consumer("2")])));
        terminating["metadata"] = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
        let old = claim(allocated(json!([consumer("1")])));
        assert_eq!(
            messages(validate(&terminating, &old)),
            ["status.reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or \
                 `deletionTimestamp` are set"]
        );
        assert!(validate(&terminating, &terminating).is_empty());
    }

    #[test]
    fn drivers_report_allocated_devices() {
        let status = |device: Value| {
            errors(json!({"allocation": allocation(result("a")), "devices": [device]}), json!({}))
        };
        let device = |fields: Value| {
            let mut device = json!({"driver": "dra.example.com", "pool": "p", "device": "d"});
            device.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            device
        };
        assert!(
            status(device(
                json!({"data": {"a": 1}, "networkData": {"ips": ["10.9.8.7/24", "2001:db8::1/64"]}})
            ))
            .is_empty()
        );
        assert_eq!(
            status(device(json!({"device": "other"}))),
            [
                "status.devices[0]: Invalid value: {\"Device\":\"other\",\"Driver\":\"dra.example.com\",\"Pool\":\"p\",\
                 \"ShareID\":\"\"}: must be an allocated device in the claim"
            ]
        );
        assert_eq!(
            status(device(
                json!({"data": [], "conditions": [{"type": "A"}], "networkData": {"interfaceName":
                "x".repeat(257), "hardwareAddress": "x".repeat(129), "ips": ["10.0.0.1", "::ffff:10.0.0.1/120",
                "010.0.0.1/8", "10.0.0.1"]}})
            )),
            [
                "status.devices[0].conditions[0].status: Required value",
                "status.devices[0].conditions[0].lastTransitionTime: Required value",
                "status.devices[0].conditions[0].reason: Required value",
                "status.devices[0].data: Invalid value: \"<value omitted>\": must be a valid JSON object",
                "status.devices[0].networkData.interfaceName: Too long: may not be more than 256 bytes",
                "status.devices[0].networkData.ips[3]: Duplicate value: \"10.0.0.1\"",
                "status.devices[0].networkData.hardwareAddress: Too long: may not be more than 128 bytes",
                "status.devices[0].networkData.ips[0]: Invalid value: \"10.0.0.1\": must be a valid address in CIDR \
                 form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)",
                "status.devices[0].networkData.ips[1]: Invalid value: \"::ffff:10.0.0.1/120\": must be in canonical \
                 form (\"10.0.0.1/24\")",
                "status.devices[0].networkData.ips[2]: Invalid value: \"010.0.0.1/8\": must be in canonical form \
                 (\"10.0.0.1/8\")",
                "status.devices[0].networkData.ips[3]: Invalid value: \"10.0.0.1\": must be a valid address in CIDR \
                 form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)",
            ]
        );
    }

    #[test]
    fn devices_are_reported_once() {
        let device = json!({"driver": "dra.example.com", "pool": "p", "device": "d"});
        assert_eq!(
            errors(json!({"allocation": allocation(result("a")), "devices": [device, device]}), json!({})),
            ["status.devices[1]: Duplicate value: {\"conditions\":null,\"device\":\"d\",\
                 \"driver\":\"dra.example.com\",\"pool\":\"p\"}"]
        );
    }

    #[test]
    fn status_of_deallocated_devices_is_removed() {
        let allocated = claim(json!({"allocation": allocation(result("a")), "devices": [result("a")]}));
        let mut deallocated = claim(json!({"devices": [result("a")]}));
        prepare(&mut deallocated, &allocated);
        assert_eq!(deallocated["status"], json!({}));
        let mut kept = allocated.clone();
        prepare(&mut kept, &allocated);
        assert_eq!(kept, allocated);
    }
}
