//! The kind: names, `.proto` and validation.

use orlop_api::field_error::{FieldError, FieldPath};
use orlop_device::Kind;
use serde_json::Value;

pub(crate) static NIC: Kind = Kind {
    group: "device.example.com",
    version: "v1alpha1",
    kind: "NIC",
    plural: "nics",
    service: "example.nic.v1alpha1.NicService",
    noun: "Nic",
    descriptors: include_bytes!("generated/nic.bin"),
    validate,
};

fn validate(nic: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("spec").child("macAddress");
    let address = nic.pointer("/spec/macAddress").and_then(Value::as_str).unwrap_or_default();
    let octets: Vec<_> = address.split(':').collect();
    let octet = |text: &&str| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if octets.len() == 6 && octets.iter().all(octet) {
        return Vec::new();
    }
    vec![FieldError::invalid(&path, address, "must be six octets, e.g. '02:42:ac:11:00:02'")]
}
