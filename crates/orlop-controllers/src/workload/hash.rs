//! Hashes in names: pod-template-hash and those of ControllerRevisions.
//!
//! Kubernetes hashes Go's text form of a template. Nothing compares the value with another program's: an existing
//! ReplicaSet is found by its template. The hash here is over the template's JSON with sorted keys.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde::Serialize;
use serde_json::Value;

/// The alphabet of names that Kubernetes generates: no vowels, and no digits that look like letters.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

const FNV_OFFSET: u32 = 0x811c_9dc5;
const FNV_PRIME: u32 = 0x0100_0193;

/// Returns the FNV-1a hash.
pub(crate) fn fnv1a(bytes: impl IntoIterator<Item = u8>) -> u32 {
    bytes.into_iter().fold(FNV_OFFSET, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(FNV_PRIME))
}

/// Returns the FNV-1 hash.
pub(crate) fn fnv1(bytes: impl IntoIterator<Item = u8>) -> u32 {
    bytes.into_iter().fold(FNV_OFFSET, |hash, byte| hash.wrapping_mul(FNV_PRIME) ^ u32::from(byte))
}

/// Returns a number as text that is safe in names.
pub(crate) fn safe_text(number: u32) -> String {
    number.to_string().bytes().map(|byte| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()])).collect()
}

/// Returns the hash of a pod template.
pub(crate) fn template_hash(template: &PodTemplateSpec, collision_count: Option<i32>) -> String {
    let text = canonical(template).to_string();
    let count = collision_count.map(|count| u64::from(count.unsigned_abs()).to_le_bytes());
    safe_text(fnv1a(text.into_bytes().into_iter().chain(count.into_iter().flatten())))
}

/// Returns a value as JSON without null or empty fields, so that absent and empty are equal.
pub(crate) fn canonical(value: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(value).unwrap_or_default();
    prune(&mut value);
    value
}

/// Removes empty fields. An object that is empty itself stays: `emptyDir: {}` differs from its absence.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields.retain(|_, field| match field {
                Value::Null => false,
                Value::Array(items) => !items.is_empty(),
                _ => true,
            });
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(fnv1a(*b"foobar"), 0xbf9c_f968);
        assert_eq!(fnv1(*b"foobar"), 0x31f0_b262);
        assert_eq!(safe_text(1_234_567_890), "56789bcdf4");
    }

    #[test]
    fn collision_count_changes_the_hash_and_empty_fields_do_not() {
        let template = |value| serde_json::from_value::<PodTemplateSpec>(value).unwrap();
        let plain = template(json!({"spec": {"containers": [{"name": "a", "image": "b"}]}}));
        let empty = template(json!({"spec": {"containers": [{"name": "a", "image": "b", "env": []}]}}));
        assert_eq!(template_hash(&plain, None), template_hash(&empty, None));
        assert_ne!(template_hash(&plain, None), template_hash(&plain, Some(1)));
        assert_ne!(template_hash(&plain, Some(1)), template_hash(&plain, Some(2)));
    }
}
