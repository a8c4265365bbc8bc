//! Branches: children with the keys that separate them.

use std::sync::Arc;

use super::{super::bytes::Bytes, Node};

/// Most children of a branch.
const CHILDREN_MAX: usize = 64;

/// A branch. Every key of child `i + 1` is at or above separator `i`, every key of child `i` below it.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    separators: Vec<Bytes>,
    pub(super) children: Vec<Arc<Node>>,
}

impl Branch {
    pub(super) fn of(left: Arc<Node>, separator: Bytes, right: Arc<Node>) -> Self {
        Self { separators: vec![separator], children: vec![left, right] }
    }

    /// Returns the position of the child that has a key, if any has.
    pub(super) fn position(&self, key: &[u8]) -> usize {
        self.separators.partition_point(|separator| super::compare(separator.as_slice(), key).is_le())
    }

    pub(super) fn is_small(&self) -> bool {
        self.children.len() < CHILDREN_MAX / 4
    }

    /// Inserts a child after the one at `position`. Returns the right half and its separator if the branch
    /// had to split.
    pub(super) fn insert(
        &mut self,
        position: usize,
        separator: Bytes,
        child: Arc<Node>,
    ) -> Option<(Bytes, Self)> {
        self.separators.insert(position, separator);
        self.children.insert(position + 1, child);
        if self.children.len() <= CHILDREN_MAX {
            return None;
        }
        // Ascending insertions leave full branches behind.
        let at = if position + 2 == self.children.len() { self.children.len() - 2 } else { CHILDREN_MAX / 2 };
        let right = Self { separators: self.separators.split_off(at), children: self.children.split_off(at) };
        let separator = self.separators.pop()?;
        Some((separator, right))
    }

    /// Drops the child at `position`.
    pub(super) fn remove(&mut self, position: usize) {
        self.children.remove(position);
        if !self.separators.is_empty() {
            self.separators.remove(position.saturating_sub(1));
        }
    }

    /// Merges the child at `position` with a neighbour if it is small and both fit into one.
    pub(super) fn merge_child(&mut self, position: usize) {
        let left = if position > 0 { position - 1 } else { position };
        let Some([first, second]) = self.children.get_mut(left..left + 2) else { return };
        let merged = match (&**first, &**second) {
            (Node::Leaf(a), Node::Leaf(b)) => (a.is_small() || b.is_small()) && a.has_room_for(b),
            (Node::Branch(a), Node::Branch(b)) => {
                (a.is_small() || b.is_small()) && a.children.len() + b.children.len() <= CHILDREN_MAX / 4 * 3
            }
            _ => false,
        };
        if !merged {
            return;
        }
        match (Arc::make_mut(first), &**second) {
            (Node::Leaf(a), Node::Leaf(b)) => a.merge(b),
            (Node::Branch(a), Node::Branch(b)) => {
                a.separators.push(self.separators[left].clone());
                a.separators.extend(b.separators.iter().cloned());
                a.children.extend(b.children.iter().cloned());
            }
            _ => {}
        }
        self.separators.remove(left);
        self.children.remove(left + 1);
    }
}

/// Returns the shortest key that is above `left` and not above `right`, where `left < right`.
pub(super) fn separator(left: &[u8], right: &[u8]) -> Bytes {
    let common = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    Bytes::new(&right[..right.len().min(common + 1)])
}
