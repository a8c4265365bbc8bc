//! Reconciliation of field sets with the current schema.
//!
//! A field that was granular and became atomic is owned entirely by managers that owned part
//! of it. The other direction needs no change.

use super::typed::{Atom, TypeRef};
use crate::managed_fields::{Fields, Node, PathElement, Set};
use serde_json::{Map, Value};

/// Reconciles fields with the current schema.
pub(crate) fn reconcile(fields: &mut Fields, of: TypeRef<'_>) {
    children(fields.wire_mut(), of);
}

fn children(wire: &mut Map<String, Value>, of: TypeRef<'_>) {
    let atom = atom_of(of);
    for (key, value) in wire.iter_mut() {
        let Value::Object(node) = value else { continue };
        // A leaf is already owned entirely.
        if node.is_empty() {
            continue;
        }
        let inner = match atom {
            Atom::Map(atom) => key.strip_prefix("f:").and_then(|name| atom.entry(name).of),
            Atom::List(atom) if key != "." => Some(atom.item),
            _ => None,
        };
        let Some(inner) = inner else { continue };
        let becomes_atomic = match atom_of(inner) {
            Atom::Scalar(_) => continue,
            Atom::List(atom) => atom.is_atomic(),
            Atom::Map(_) if inner.is_free_form() => continue,
            Atom::Map(atom) => atom.atomic,
        };
        if becomes_atomic {
            node.clear();
        } else {
            children(node, inner);
        }
    }
}

/// Resolves a type without a value: map before scalar before list.
fn atom_of(of: TypeRef<'_>) -> Atom<'_> {
    of.atom(None)
}

/// Adds declared ancestors to a set: owning `a.b.c` of a struct owns `a` and `a.b`,
/// but a map entry is owned only explicitly.
pub(crate) fn with_named_fields(set: &Set, of: Option<TypeRef<'_>>) -> Set {
    set.map_nodes(|node| {
        let atom = of.map(atom_of);
        let (inner, declared) = match (atom, &node.element) {
            (Some(Atom::Map(atom)), PathElement::Field(name)) => {
                let entry = atom.entry(name);
                (entry.of, entry.declared)
            }
            (Some(Atom::List(atom)), PathElement::Key(_)) => (Some(atom.item), false),
            _ => (None, false),
        };
        Node {
            element: node.element.clone(),
            member: node.member || (declared && !node.children.is_empty()),
            children: with_named_fields(&node.children, inner),
        }
    })
}
