//! Updates of a Pod: images, deadline, added tolerations and removed scheduling gates.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Map, Value};

use super::{resources, scheduling};
use crate::{
    accessors::{integer, list, map, present, text},
    defaulting,
    equality::semantically_equal,
    validation,
};

const ALLOWED: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Annotation of pods that stand for static ones.
const MIRROR_POD: &str = "kubernetes.io/config.mirror";
/// Prefix of annotations with the profiles of containers.
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";

pub(crate) fn validate_spec_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("spec");
    let none = Value::Object(Map::new());
    let (new, old) = (object.get("spec").unwrap_or(&none), old.get("spec").unwrap_or(&none));
    let mut errors = Vec::new();
    for field in ["containers", "initContainers"] {
        let pointer = format!("/{field}");
        if list(new, &pointer).len() != list(old, &pointer).len() {
            errors.push(FieldError::forbidden(
                &path.child(field),
                "pod updates may not add or remove containers",
            ));
            return errors;
        }
    }
    if let Some(error) = validate_active_deadline(new, old, &path.child("activeDeadlineSeconds")) {
        errors.push(error);
        return errors;
    }
    errors.extend(validate_added_tolerations(new, old, &path.child("tolerations")));
    errors.extend(validate_removed_gates(new, old, &path.child("schedulingGates")));
    let mut kept = new.clone();
    restore_mutable_fields(&mut kept, old);
    if !list(old, "/schedulingGates").is_empty() {
        errors.extend(validate_gated_update(&mut kept, old, &path));
    }
    if !semantically_equal(&kept, old) {
        errors.push(FieldError::forbidden(&path, ALLOWED));
    }
    errors
}

/// Validates an update of annotations: those by which a pod stands for a static one or is confined are for life, since
/// admission has decided about the pod with them.
pub(crate) fn validate_annotations_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("metadata").child("annotations");
    let (new, old) = (map(object, "/metadata/annotations"), map(old, "/metadata/annotations"));
    let kind = |key: &str| match key {
        MIRROR_POD => Some("mirror pod annotation"),
        key if key.starts_with(APP_ARMOR) => Some("AppArmor annotations"),
        _ => None,
    };
    let changed = old.iter().filter(|(key, before)| new.get(*key) != Some(*before)).map(|(key, _)| key);
    let added = new.keys().filter(|key| !old.contains_key(*key));
    let of = |verbs: &'static str| {
        let path = path.clone();
        move |key: &String| {
            kind(key).map(|kind| FieldError::forbidden(&path.key(key), format!("may not {verbs} {kind}")))
        }
    };
    changed.filter_map(of("remove or update")).chain(added.filter_map(of("add"))).collect()
}

/// Validates an update through `ephemeralcontainers`: containers may be added, and are immutable then.
pub(crate) fn validate_ephemeral_containers_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("spec").child("ephemeralContainers");
    let given = list(object, "/spec/ephemeralContainers");
    let mut errors = Vec::new();
    for before in list(old, "/spec/ephemeralContainers") {
        let name = text(before, "/name");
        let detail = match given.iter().find(|container| text(container, "/name") == name) {
            Some(now) if semantically_equal(now, before) => continue,
            Some(_) => format!("existing ephemeral containers {name:?} may not be changed\n"),
            None => format!("existing ephemeral containers {name:?} may not be removed\n"),
        };
        errors.push(FieldError::forbidden(&path, detail));
    }
    errors
}

/// Validates an update through `resize`: CPU and memory may change if the QoS class does not.
pub(crate) fn validate_resize(object: &Value, old: &Value) -> Vec<FieldError> {
    let path = FieldPath::root("spec");
    let mut kept = object.get("spec").cloned().unwrap_or_default();
    for field in ["containers", "initContainers"] {
        for (container, before) in
            defaulting::items_mut(&mut kept, field).zip(list(old, &format!("/spec/{field}")))
        {
            for field in ["resources", "resizePolicy"] {
                restore_field(container, before, field);
            }
        }
    }
    restore_field(&mut kept, old.get("spec").unwrap_or(&Value::Null), "resources");
    let mut errors = Vec::new();
    if !semantically_equal(&kept, old.get("spec").unwrap_or(&Value::Null)) {
        errors.push(FieldError::forbidden(&path, "only cpu and memory resources are mutable"));
    }
    if resources::qos_class(object) != resources::qos_class(old) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.push(FieldError::invalid(&path, resources::qos_class(old), detail));
    }
    errors
}

/// Restores status fields that older writers omit.
pub(crate) fn restore_status_fields(object: &mut Value, old: &Value) {
    let Some(status) = defaulting::object_mut(object, "status") else { return };
    for field in ["qosClass", "observedGeneration"] {
        if let Some(before) = present(old, &format!("/status/{field}")) {
            defaulting::set_if_zero(status, field, before.clone());
        }
    }
    for field in
        ["resourceClaimStatuses", "extendedResourceClaimStatus", "nodeAllocatableResourceClaimStatuses"]
    {
        if let Some(before) = present(old, &format!("/status/{field}")) {
            defaulting::set_if_absent(status, field, before.clone());
        }
    }
    // There may be several conditions of a type: match them in order.
    let mut before: Vec<&Value> = list(old, "/status/conditions").iter().collect();
    for condition in defaulting::items_mut(status, "conditions") {
        let same = |known: &&Value| text(known, "/type") == text(condition, "/type");
        let Some(known) = before.iter().position(same).map(|place| before.remove(place)) else { continue };
        if let Some(generation) = present(known, "/observedGeneration") {
            defaulting::set_if_zero(condition, "observedGeneration", generation.clone());
        }
    }
}

/// Restores pod-level resources that older writers omit.
pub(crate) fn restore_pod_resources(object: &mut Value, old: &Value) {
    if let Some(before) = present(old, "/spec/resources")
        && let Some(spec) = defaulting::object_mut(object, "spec")
    {
        defaulting::set_if_absent(spec, "resources", before.clone());
    }
}

/// Validates activeDeadlineSeconds: it may be set and shortened.
fn validate_active_deadline(new: &Value, old: &Value, path: &FieldPath) -> Option<FieldError> {
    let seconds = |spec: &Value| present(spec, "/activeDeadlineSeconds").and_then(Value::as_i64);
    match (seconds(new), seconds(old)) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            Some(FieldError::invalid(path, new, validation::inclusive_range_message(0, i64::from(i32::MAX))))
        }
        (Some(new), Some(old)) if old < new => {
            Some(FieldError::invalid(path, new, "must be less than or equal to previous value"))
        }
        (None, Some(_)) => Some(FieldError::invalid(
            path,
            Value::Null,
            "must not update from a positive integer to nil value",
        )),
        _ => None,
    }
}

fn validate_added_tolerations(new: &Value, old: &Value, path: &FieldPath) -> Vec<FieldError> {
    let lasting = |toleration: &Value| {
        let mut toleration = toleration.clone();
        defaulting::remove_field(&mut toleration, "tolerationSeconds");
        toleration
    };
    let given = list(new, "/tolerations");
    for old in list(old, "/tolerations") {
        if !given.iter().any(|new| semantically_equal(&lasting(new), &lasting(old))) {
            let detail = "existing toleration can not be modified except its tolerationSeconds";
            return vec![FieldError::forbidden(path, detail)];
        }
    }
    scheduling::validate_tolerations(given, path)
}

fn validate_removed_gates(new: &Value, old: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, gate) in list(new, "/schedulingGates").iter().enumerate() {
        let name = text(gate, "/name");
        if !list(old, "/schedulingGates").iter().any(|old| text(old, "/name") == name) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(FieldError::forbidden(&path.index(index).child("name"), detail));
        }
    }
    errors
}

/// Reverts allowed changes, so that any remaining difference is an error.
fn restore_mutable_fields(spec: &mut Value, old: &Value) {
    for field in ["containers", "initContainers"] {
        let before = list(old, &format!("/{field}"));
        for (container, old) in defaulting::items_mut(spec, field).zip(before) {
            if container.is_object() {
                container["image"] = old.get("image").cloned().unwrap_or_default();
            }
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore_field(spec, old, field);
    }
    if integer(old, "/terminationGracePeriodSeconds") < 0
        && integer(spec, "/terminationGracePeriodSeconds") == 1
    {
        restore_field(spec, old, "terminationGracePeriodSeconds");
    }
}

fn restore_field(spec: &mut Value, old: &Value, field: &str) {
    match (spec.as_object_mut(), old.get(field)) {
        (Some(map), Some(value)) => drop(map.insert(field.to_owned(), value.clone())),
        (Some(map), None) => drop(map.remove(field)),
        (None, _) => {}
    }
}

/// Validates an update of a gated pod, which may narrow its node selection.
fn validate_gated_update(spec: &mut Value, old: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (new_labels, old_labels) = (map(spec, "/nodeSelector").clone(), map(old, "/nodeSelector"));
    if old_labels.iter().any(|(key, value)| new_labels.get(key) != Some(value)) {
        let path = path.child("nodeSelector");
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid(&path, Value::Object(new_labels), detail));
    }
    restore_field(spec, old, "nodeSelector");
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{core::pod::Pod, strategy::Strategy, validation::tests::messages};

    fn pod() -> Value {
        json!({"spec": {"containers": [{"name": "a", "image": "x:1", "env": []}], "nodeName": "n", "hostNetwork": false}})
    }

    fn changed(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut new = pod();
        change(&mut new["spec"]);
        messages(validate_spec_update(&new, &pod()))
    }

    #[test]
    fn image_deadline_and_tolerations_may_change() {
        assert!(changed(|_| {}).is_empty());
        assert!(changed(|spec| spec["containers"][0]["image"] = "x:2".into()).is_empty());
        assert!(changed(|spec| spec["activeDeadlineSeconds"] = 5.into()).is_empty());
        assert!(changed(|spec| spec["tolerations"] = json!([{"operator": "Exists"}])).is_empty());
        // A client that omits empty values changes nothing.
        assert!(
            changed(|spec| *spec = json!({"containers": [{"name": "a", "image": "x:1"}], "nodeName": "n"}))
                .is_empty()
        );
    }

    #[test]
    fn annotations_that_admission_has_seen_are_for_life() {
        let with =
            |annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": pod()["spec"]});
        let changed = |new: Value, old: Value| {
            let (new, old) = (with(new), with(old));
            let found = ["", "status"].map(|part| messages(Pod.validate_replacement(&new, &old, part)));
            let found = found.map(|errors| {
                errors.into_iter().filter(|error| error.starts_with("metadata")).collect::<Vec<_>>()
            });
            assert_eq!(found[0], found[1]);
            found[0].clone()
        };
        let confined = "container.apparmor.security.beta.kubernetes.io/a";
        assert!(changed(json!({"x": "2", MIRROR_POD: "h"}), json!({"x": "1", MIRROR_POD: "h"})).is_empty());
        assert_eq!(
            changed(json!({MIRROR_POD: "h"}), json!({})),
            [
                "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation"
            ]
        );
        assert_eq!(
            changed(json!({}), json!({MIRROR_POD: "h"})),
            [
                "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation"
            ]
        );
        assert_eq!(
            changed(json!({confined: "unconfined"}), json!({confined: "runtime/default"})),
            [format!(
                "metadata.annotations[{confined}]: Forbidden: may not remove or update AppArmor annotations"
            )]
        );
    }

    #[test]
    fn other_changes_are_forbidden() {
        assert_eq!(changed(|spec| spec["nodeName"] = "m".into()), [format!("spec: Forbidden: {ALLOWED}")]);
        assert_eq!(
            changed(|spec| spec["containers"][0]["env"] = json!([{"name": "A"}])),
            [format!("spec: Forbidden: {ALLOWED}")]
        );
        assert_eq!(
            changed(|spec| spec["containers"] = json!([])),
            ["spec.containers: Forbidden: pod updates may not add or remove containers"]
        );
        assert_eq!(
            changed(|spec| spec["schedulingGates"] = json!([{"name": "g"}])),
            [
                "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"
            ]
        );
        let with_deadline = |seconds: Value| json!({"spec": {"activeDeadlineSeconds": seconds}});
        assert_eq!(
            messages(validate_spec_update(&with_deadline(json!(9)), &with_deadline(json!(5)))),
            ["spec.activeDeadlineSeconds: Invalid value: 9: must be less than or equal to previous value"]
        );
        let tolerating = |items: Value| json!({"spec": {"tolerations": items}});
        assert_eq!(
            messages(validate_spec_update(
                &tolerating(json!([])),
                &tolerating(json!([{"key": "a", "operator": "Exists"}]))
            )),
            [
                "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"
            ]
        );
    }
}
