//! Every node of a schema, wherever it stands.

use orlop_api::schema::unstructured::{entries, list};
use serde_json::Value;

/// Calls `see` for a schema and for every schema in it.
pub(crate) fn visit<'a>(schema: &'a Value, see: &mut dyn FnMut(&'a Value)) {
    if !schema.is_object() {
        return;
    }
    see(schema);
    for key in ["items", "not", "additionalProperties", "additionalItems"] {
        match schema.get(key) {
            Some(Value::Array(several)) => several.iter().for_each(|nested| visit(nested, see)),
            Some(nested) => visit(nested, see),
            None => {}
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        list(schema, key).iter().for_each(|nested| visit(nested, see));
    }
    for key in ["properties", "patternProperties", "definitions", "dependencies"] {
        entries(schema, key).for_each(|(_, nested)| visit(nested, see));
    }
}

/// Returns whether any node of a schema matches.
pub(super) fn any(schema: &Value, is: impl Fn(&Value) -> bool) -> bool {
    let mut found = false;
    visit(schema, &mut |node| found = found || is(node));
    found
}
