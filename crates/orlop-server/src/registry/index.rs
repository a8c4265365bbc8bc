//! Index terms of objects.
//!
//! Labels are indexed as `l:KEY`, selectable fields as `f:PATH`, uids of owners as `o`.

use orlop_api::object_meta;
use orlop_store::Terms;
use serde_json::Value;

use super::Kind;

/// The index field of owners' uids.
pub(crate) const OWNER: &str = "o";

/// Returns the index terms of an object in its stored version.
pub(crate) fn terms_of(kind: &Kind, object: &Value) -> Terms {
    let meta = object_meta::of(object);
    let labels = meta.get("labels").and_then(Value::as_object).into_iter().flatten();
    let labels = labels.filter_map(|(key, value)| Some((format!("l:{key}"), value.as_str()?.to_owned())));
    let fields = kind
        .selectable_fields
        .iter()
        .map(|path| (format!("f:{path}"), kind.strategy.field_value(object, path)));
    let owners = meta.get("ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let owners = owners.filter_map(|owner| Some((OWNER.to_owned(), owner.get("uid")?.as_str()?.to_owned())));
    Terms::new(labels.chain(fields).chain(owners))
}
