//! What a caller may change of an object, and what it means for the rest of it.

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
    /// The next version of `current` when a caller wants it to be `wanted`. With [`Part::Spec`], labels,
    /// annotations and spec are taken; with [`Part::Status`], the status. Everything else stays, except
    /// that a changed name, namespace or uid is refused.
    pub(super) fn next(
        &self,
        current: &Object,
        wanted: &Object,
        part: Part,
        bad: fn(String) -> Error,
    ) -> Result<Object, Error> {
        self.check_identity(current, wanted)?;
        let mut next = current.clone();
        let name = part.name();
        let mut value = self.shape.normal(part, wanted.part(name)).map_err(bad)?;
        // A stored part that no longer fits its kind differs from everything: this write repairs it.
        let before = self.shape.normal(part, current.part(name)).unwrap_or_default();
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
                conditions::stamp(&mut value, &before, &now());
                if value != before {
                    next.set_part(name, value);
                }
            }
        }
        Ok(next)
    }

    fn check_identity(&self, current: &Object, wanted: &Object) -> Result<(), Error> {
        let changed = ["name", "namespace", "uid"].into_iter().filter_map(|field| {
            let (old, new) =
                (object_meta::text(current.meta(), field), object_meta::text(wanted.meta(), field));
            let path = FieldPath::root("metadata").child(field);
            (old != new).then(|| FieldError::invalid(&path, new, object_meta::IMMUTABLE))
        });
        let mut errors: Vec<_> = changed.collect();
        for field in ["labels", "annotations"] {
            errors.extend(not_texts(wanted.meta().get(field), &FieldPath::root("metadata").child(field)));
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(Error::Invalid { kind: self.kind.kind, name: current.name().to_owned(), errors })
    }
}

/// Labels and annotations are maps of text to text; only a patch can bring anything else.
fn not_texts(map: Option<&Value>, path: &FieldPath) -> Vec<FieldError> {
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
