//! Merges an update into the current object.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    object_meta,
};
use serde_json::Value;

use crate::{
    conditions,
    error::Error,
    object::{Object, now},
    resource::Resource,
    shape::Part,
};

impl Resource {
    /// Returns the next version of `current`. With [`Part::Spec`], labels, annotations and spec come from `wanted`; with
    /// [`Part::Status`], the status. Everything else stays. A changed name, namespace or uid is an error.
    pub(super) fn merge(
        &self,
        current: &Object,
        wanted: &Object,
        part: Part,
        invalid: fn(String) -> Error,
    ) -> Result<Object, Error> {
        self.validate_identity(current, wanted)?;
        let mut next = current.clone();
        let name = part.name();
        let mut value = self.shape.normalize(part, wanted.part(name)).map_err(invalid)?;
        // A stored part that no longer matches the .proto differs from everything, so that this write repairs it.
        let before = self.shape.normalize(part, current.part(name)).unwrap_or_default();
        match part {
            Part::Spec => {
                for map in ["labels", "annotations"] {
                    match wanted.meta().get(map).filter(|map| map.as_object().is_some_and(|m| !m.is_empty()))
                    {
                        Some(entries) => next.meta_mut().insert(map.to_owned(), entries.clone()),
                        None => next.meta_mut().remove(map),
                    };
                }
                if value != before {
                    next.meta_mut().insert("generation".into(), (current.generation() + 1).into());
                    next.set_part(name, value);
                }
            }
            Part::Status => {
                conditions::set_transition_times(&mut value, &before, &now());
                if value != before {
                    next.set_part(name, value);
                }
            }
        }
        Ok(next)
    }

    /// Rejects changes of immutable metadata.
    fn validate_identity(&self, current: &Object, wanted: &Object) -> Result<(), Error> {
        let changed = ["name", "namespace", "uid"].into_iter().filter_map(|field| {
            let (old, new) =
                (object_meta::text(current.meta(), field), object_meta::text(wanted.meta(), field));
            let path = FieldPath::root("metadata").child(field);
            (old != new).then(|| FieldError::invalid(&path, new, object_meta::IMMUTABLE))
        });
        let mut errors: Vec<_> = changed.collect();
        for field in ["labels", "annotations"] {
            errors.extend(validate_string_map(
                wanted.meta().get(field),
                &FieldPath::root("metadata").child(field),
            ));
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Error::Invalid { kind: self.kind.kind, name: current.name().to_owned(), errors })
    }
}

/// Validates that labels or annotations are a map of strings. Only a patch can make them anything else.
fn validate_string_map(map: Option<&Value>, path: &FieldPath) -> Vec<FieldError> {
    match map {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Object(map)) => {
            let wrong = map.iter().filter(|(_, value)| !value.is_string());
            wrong
                .map(|(key, value)| FieldError::type_invalid(&path.key(key), value.clone(), "must be text"))
                .collect()
        }
        Some(other) => vec![FieldError::type_invalid(path, other.clone(), "must be a map of texts")],
    }
}
