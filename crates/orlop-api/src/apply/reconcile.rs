//! Sets written under an older schema, made to fit the present one.
//!
//! A field that was granular and became atomic is owned whole by whoever owned part
//! of it. The other direction needs nothing: it is as if it had always been granular.

use super::typed::{Shape, TypeRef};
use crate::managed_fields::{Node, PathElement, Set};

/// The set under the present schema; none where nothing changes.
pub(crate) fn reconcile(set: &Set, of: TypeRef<'_>) -> Option<Set> {
    let mut changed = false;
    let reconciled = children(set, of, &mut changed);
    changed.then_some(reconciled)
}

fn children(set: &Set, of: TypeRef<'_>, changed: &mut bool) -> Set {
    set.map_nodes(|node| {
        let inner = below(of, &node.element);
        match inner {
            Some(inner) => reconciled(node, inner, changed),
            None => node.clone(),
        }
    })
}

fn reconciled(node: &Node, of: TypeRef<'_>, changed: &mut bool) -> Node {
    let was_atomic = node.member && node.children.is_empty();
    let becomes_atomic = match shape_of(of) {
        Shape::Scalar(_) => return node.clone(),
        Shape::List(shape) => shape.is_atomic(),
        Shape::Map(_) if of.is_free_form() => return node.clone(),
        Shape::Map(shape) => shape.atomic,
    };
    if becomes_atomic && !was_atomic {
        *changed = true;
        return Node { element: node.element.clone(), member: true, children: Set::new() };
    }
    Node { element: node.element.clone(), member: node.member, children: children(&node.children, of, changed) }
}

/// The type without a value: map before scalar before list.
fn shape_of(of: TypeRef<'_>) -> Shape<'_> {
    of.shape(None)
}

fn below<'a>(of: TypeRef<'a>, element: &PathElement) -> Option<TypeRef<'a>> {
    match (shape_of(of), element) {
        (Shape::Map(shape), PathElement::Field(name)) => shape.entry(name).of,
        (Shape::List(shape), _) => Some(shape.item),
        _ => None,
    }
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
