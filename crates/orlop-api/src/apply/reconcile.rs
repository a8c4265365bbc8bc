//! Sets written under an older schema, made to fit the present one.
//!
//! A field that was granular and became atomic is owned whole by whoever owned part
//! of it. The other direction needs nothing: it is as if it had always been granular.

use super::typed::{Shape, TypeRef};
use crate::managed_fields::{Fields, Node, PathElement, Set};
use serde_json::{Map, Value};

/// Brings fields under the present schema.
pub(crate) fn reconcile(fields: &mut Fields, of: TypeRef<'_>) {
    children(fields.wire_mut(), of);
}

fn children(wire: &mut Map<String, Value>, of: TypeRef<'_>) {
    let shape = shape_of(of);
    for (key, value) in wire.iter_mut() {
        let Value::Object(node) = value else { continue };
        // A leaf needs nothing: it is owned whole already.
        if node.is_empty() {
            continue;
        }
        let inner = match shape {
            Shape::Map(shape) => key.strip_prefix("f:").and_then(|name| shape.entry(name).of),
            Shape::List(shape) if key != "." => Some(shape.item),
            _ => None,
        };
        let Some(inner) = inner else { continue };
        let becomes_atomic = match shape_of(inner) {
            Shape::Scalar(_) => continue,
            Shape::List(shape) => shape.is_atomic(),
            Shape::Map(_) if inner.is_free_form() => continue,
            Shape::Map(shape) => shape.atomic,
        };
        if becomes_atomic {
            node.clear();
        } else {
            children(node, inner);
        }
    }
}

/// The type without a value: map before scalar before list.
fn shape_of(of: TypeRef<'_>) -> Shape<'_> {
    of.shape(None)
}

/// The set with the named fields above its paths added: owning `a.b.c` of a struct owns `a` and `a.b`,
/// but an entry of a map is owned only if it says so.
pub(crate) fn with_named_fields(set: &Set, of: Option<TypeRef<'_>>) -> Set {
    set.map_nodes(|node| {
        let shape = of.map(shape_of);
        let (inner, declared) = match (shape, &node.element) {
            (Some(Shape::Map(shape)), PathElement::Field(name)) => {
                let entry = shape.entry(name);
                (entry.of, entry.declared)
            }
            (Some(Shape::List(shape)), PathElement::Key(_)) => (Some(shape.item), false),
            _ => (None, false),
        };
        Node {
            element: node.element.clone(),
            member: node.member || (declared && !node.children.is_empty()),
            children: with_named_fields(&node.children, inner),
        }
    })
}
