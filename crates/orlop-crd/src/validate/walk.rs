//! Traversal of schema nodes.

use orlop_api::schema::unstructured::{entries, list};
use serde_json::Value;

/// Calls `visitor` for a schema and every nested schema.
pub(crate) fn visit<'a>(schema: &'a Value, visitor: &mut dyn FnMut(&'a Value)) {
    if !schema.is_object() {
        return;
    }
    visitor(schema);
    for key in ["items", "not", "additionalProperties", "additionalItems"] {
        match schema.get(key) {
            Some(Value::Array(several)) => several.iter().for_each(|nested| visit(nested, visitor)),
            Some(nested) => visit(nested, visitor),
            None => {}
        }
    }
    for key in ["allOf", "anyOf", "oneOf"] {
        list(schema, key).iter().for_each(|nested| visit(nested, visitor));
    }
    for key in ["properties", "patternProperties", "definitions", "dependencies"] {
        entries(schema, key).for_each(|(_, nested)| visit(nested, visitor));
    }
}

/// Returns whether any node of a schema matches.
pub(super) fn any(schema: &Value, is: impl Fn(&Value) -> bool) -> bool {
    let mut found = false;
    visit(schema, &mut |node| found = found || is(node));
    found
}
