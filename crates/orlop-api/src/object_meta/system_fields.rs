//! System fields of ObjectMeta.

use super::{of, text};
use crate::managed_fields::entries::equal_ignoring_timestamps;
use serde_json::{Map, Value};

/// Removes fields that clients may not set on create.
pub fn clear_for_create(object: &mut Value) {
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
        ] {
            meta.remove(key);
        }
    }
}

/// Carries over system fields that an update omits or may not change.
pub fn carry_over(new: &mut Value, old: &Value) {
    let old = of(old);
    let Some(new) = new.as_object_mut() else { return };
    let meta = new.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(meta) = meta.as_object_mut() else { return };
    meta.remove("selfLink");
    let absent = |meta: &Map<String, Value>, key: &str| {
        meta.get(key).is_none_or(|value| value.is_null() || value.as_str() == Some(""))
    };
    for key in ["uid", "deletionGracePeriodSeconds"] {
        if let Some(value) = old.get(key).filter(|_| absent(meta, key)) {
            meta.insert(key.to_owned(), value.clone());
        }
    }
    // Values of these in an update are ignored.
    for key in ["creationTimestamp", "deletionTimestamp"] {
        if let Some(value) = old.get(key) {
            meta.insert(key.to_owned(), value.clone());
        }
    }
    match old.get("generation") {
        Some(generation) => drop(meta.insert("generation".to_owned(), generation.clone())),
        None => drop(meta.remove("generation")),
    }
}

/// Returns whether an update changes the desired state: anything outside metadata, and outside status
/// if that is a subresource. Such an update increments the generation.
pub fn desired_state_changed(new: &Value, old: &Value, status_subresource: bool) -> bool {
    let counts = |key: &str| key != "metadata" && !(status_subresource && key == "status");
    match (new.as_object(), old.as_object()) {
        (Some(new), Some(old)) => {
            let count = |map: &Map<String, Value>| map.keys().filter(|key| counts(key)).count();
            count(new) != count(old)
                || new.iter().any(|(key, value)| counts(key) && old.get(key) != Some(value))
        }
        _ => new != old,
    }
}

/// Sets the generation of an update.
pub fn bump_generation(new: &mut Value, old: &Value, status_subresource: bool) {
    if desired_state_changed(new, old, status_subresource)
        && let Some(meta) = new.get_mut("metadata").and_then(Value::as_object_mut)
    {
        let generation = of(old).get("generation").and_then(Value::as_i64).unwrap_or_default();
        meta.insert("generation".to_owned(), generation.saturating_add(1).into());
    }
}

/// Returns whether a write is a no-op apart from managedFields timestamps. No-ops are not stored.
pub fn is_no_op(new: &Value, old: &Value) -> bool {
    if text(of(new), "resourceVersion") != text(of(old), "resourceVersion") {
        return false;
    }
    new == old || equal_ignoring_timestamps(new, old)
}

/// Deletion propagation to dependents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    Orphan,
    Background,
    Foreground,
}

impl Propagation {
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "Orphan" => Some(Self::Orphan),
            "Background" => Some(Self::Background),
            "Foreground" => Some(Self::Foreground),
            _ => None,
        }
    }
}

/// Returns the finalizers of an object to delete. Garbage collection finalizers follow the requested propagation
/// policy, else the existing ones, else the kind's default.
pub fn deletion_finalizers(
    finalizers: &[&str],
    asked: Option<Propagation>,
    default: Propagation,
) -> Vec<String> {
    let has = |name: &str| finalizers.contains(&name);
    let policy = match asked {
        Some(policy) => policy,
        None if has(super::FINALIZER_ORPHAN) => Propagation::Orphan,
        None if has(super::FINALIZER_FOREGROUND) => Propagation::Foreground,
        None => default,
    };
    let garbage = |name: &str| name == super::FINALIZER_ORPHAN || name == super::FINALIZER_FOREGROUND;
    let mut kept: Vec<String> =
        finalizers.iter().filter(|name| !garbage(name)).map(|name| (*name).to_owned()).collect();
    match policy {
        Propagation::Orphan => kept.push(super::FINALIZER_ORPHAN.to_owned()),
        Propagation::Foreground => kept.push(super::FINALIZER_FOREGROUND.to_owned()),
        Propagation::Background => {}
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn system_fields_are_reset_on_create_and_kept_on_update() {
        let mut object = json!({"metadata": {"name": "a", "uid": "x", "creationTimestamp": "t", "selfLink": "l", "deletionTimestamp": "t"}});
        clear_for_create(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
        let old = json!({"metadata": {"name": "a", "uid": "u", "creationTimestamp": "t", "generation": 3, "deletionGracePeriodSeconds": 5}});
        let mut new = json!({"metadata": {"name": "a", "uid": "", "generation": 9}});
        carry_over(&mut new, &old);
        assert_eq!(new, old);
        let mut other = json!({"metadata": {"uid": "mine"}});
        carry_over(&mut other, &old);
        assert_eq!(other["metadata"]["uid"], "mine");
    }

    #[test]
    fn generation_follows_the_desired_state() {
        let old = json!({"metadata": {"generation": 3}, "spec": {"a": 1}, "status": {"p": 1}});
        let with = |key: &str, value: Value| {
            let mut new = old.clone();
            new[key] = value;
            new
        };
        assert!(!desired_state_changed(&with("metadata", json!({"labels": {}})), &old, true));
        assert!(!desired_state_changed(&with("status", json!(2)), &old, true));
        assert!(desired_state_changed(&with("status", json!(2)), &old, false));
        assert!(desired_state_changed(&with("data", json!(2)), &old, true));
        let mut new = with("spec", json!({"a": 2}));
        bump_generation(&mut new, &old, true);
        assert_eq!(new["metadata"]["generation"], 4);
        let mut same = old.clone();
        bump_generation(&mut same, &old, true);
        assert_eq!(same, old);
    }

    #[test]
    fn managed_fields_timestamps_alone_are_no_change() {
        let object = |time: &str, manager: &str| json!({"metadata": {"managedFields": [{"manager": manager, "time": time}]}, "spec": {"a": 1}});
        let old = object("1", "m");
        assert!(is_no_op(&old, &old));
        assert!(is_no_op(&object("2", "m"), &old));
        assert!(!is_no_op(&object("1", "n"), &old));
        let mut changed = object("2", "m");
        changed["spec"]["a"] = json!(2);
        assert!(!is_no_op(&changed, &old));
    }

    #[test]
    fn deletion_sets_finalizers_of_the_propagation_policy() {
        use Propagation::{Background, Foreground, Orphan};
        for (finalizers, asked, default, expected) in [
            (vec!["a"], Some(Orphan), Background, vec!["a", "orphan"]),
            (vec!["orphan", "a"], Some(Foreground), Background, vec!["a", "foregroundDeletion"]),
            (vec!["orphan", "foregroundDeletion"], Some(Background), Orphan, vec![]),
            (vec!["foregroundDeletion"], None, Background, vec!["foregroundDeletion"]),
            (vec!["orphan"], None, Background, vec!["orphan"]),
            (vec![], None, Orphan, vec!["orphan"]),
            (vec![], None, Background, vec![]),
        ] {
            assert_eq!(
                deletion_finalizers(&finalizers, asked, default),
                expected,
                "{finalizers:?} {asked:?}"
            );
        }
    }
}
