//! The kind GPU.

use orlop_api::field_error::{FieldError, FieldPath};
use orlop_device_client::api;
use serde_json::Value;

use super::Kind;

/// Longest UUID. Drivers' are shorter.
const UUID_BYTES_MAX: usize = 96;
/// Longest recommended action.
const ACTION_BYTES_MAX: usize = 128;

/// The GPUs of a node.
pub static GPU: Kind = Kind {
    group: "device.nvidia.com",
    version: "v1alpha1",
    kind: "GPU",
    plural: "gpus",
    service: "nvidia.nvsentinel.v1alpha1.GpuService",
    noun: "Gpu",
    descriptors: api::FILE_DESCRIPTOR_SET,
    validate,
};

fn validate(gpu: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let path = FieldPath::root("spec").child("uuid");
    match gpu.pointer("/spec/uuid").and_then(Value::as_str).unwrap_or_default() {
        "" => errors.push(FieldError::required(&path, "a GPU is known by its UUID")),
        uuid if uuid.len() > UUID_BYTES_MAX => errors.push(FieldError::too_long(&path, UUID_BYTES_MAX)),
        uuid if !is_uuid(uuid) => {
            let why = "must be 'GPU-' and hexadecimal digits in groups joined by '-', \
                       e.g. 'GPU-6b7a32cf-3f6c-4d9e-9a53-2f9f6f0e7c11'";
            errors.push(FieldError::invalid(&path, uuid, why));
        }
        _ => {}
    }
    let action = gpu.pointer("/status/recommendedAction").and_then(Value::as_str).unwrap_or_default();
    let path = FieldPath::root("status").child("recommendedAction");
    if action.len() > ACTION_BYTES_MAX {
        errors.push(FieldError::too_long(&path, ACTION_BYTES_MAX));
    } else if action.bytes().any(|byte| byte.is_ascii_control()) {
        errors.push(FieldError::invalid(&path, action, "must not contain control characters"));
    }
    errors
}

fn is_uuid(text: &str) -> bool {
    text.strip_prefix("GPU-").is_some_and(|rest| {
        rest.split('-').all(|group| !group.is_empty() && group.bytes().all(|byte| byte.is_ascii_hexdigit()))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn uuid_is_validated() {
        for good in ["GPU-1234", "GPU-6b7a32cf-3f6c-4d9e-9a53-2f9f6f0e7c11", "GPU-ABCDEF"] {
            assert_eq!(validate(&json!({"spec": {"uuid": good}})), [], "{good}");
        }
        let long = format!("GPU-{}", "a".repeat(100));
        for bad in ["", "GPU-", "GPU-xyz", "gpu-12", "GPU-12-", "GPU--12", "MIG-12", "GPU-12\n", &long] {
            let errors = validate(&json!({"spec": {"uuid": bad}}));
            assert_eq!(errors.len(), 1, "{bad}");
            assert!(errors[0].to_string().starts_with("spec.uuid: "), "{}", errors[0]);
        }
    }
}
