//! Branches: children with the keys that separate them.

use std::{cmp::Ordering, sync::Arc};

use super::{super::bytes::Bytes, Node, interpolation::Interpolation};

/// Separators around a guess that are compared before the branch is searched.
const NEAR: usize = 7;
/// Most children of a branch.
const CHILDREN_MAX: usize = 128;

/// A branch. Every key of child `i + 1` is at or above separator `i`, every key of child `i` below it.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    /// Eight bytes of each separator after the prefix that all of them share, as a number: a search reads little else.
    heads: Vec<u64>,
    interpolation: Interpolation,
    prefix: usize,
    /// The first eight bytes of that prefix, and perhaps some more.
    prefix_head: [u8; 8],
    separators: Vec<Bytes>,
    pub(super) children: Vec<Arc<Node>>,
}

impl Branch {
    pub(super) fn of(left: Arc<Node>, separator: Bytes, right: Arc<Node>) -> Self {
        Self::new(vec![separator], vec![left, right])
    }

    fn new(separators: Vec<Bytes>, children: Vec<Arc<Node>>) -> Self {
        let mut branch = Self {
            heads: Vec::new(),
            interpolation: Interpolation::default(),
            prefix: 0,
            prefix_head: [0; 8],
            separators,
            children,
        };
        branch.set_heads();
        branch
    }

    /// Computes prefix and heads anew, after a change of the separators.
    fn set_heads(&mut self) {
        self.prefix = match self.separators.as_slice() {
            [first, .., last] => super::common_prefix(first.as_slice(), last.as_slice()),
            _ => 0,
        };
        self.prefix_head =
            self.separators.first().map_or(0, |first| super::head(first.as_slice())).to_be_bytes();
        self.heads.clear();
        let prefix = self.prefix;
        self.heads
            .extend(self.separators.iter().map(|separator| super::head(&separator.as_slice()[prefix..])));
        self.interpolation = match self.heads.as_slice() {
            [first, .., last] => Interpolation::new(*first, *last, self.heads.len()),
            _ => Interpolation::default(),
        };
    }

    /// Returns the position of the child that has a key, if any has.
    pub(super) fn position(&self, key: &[u8]) -> usize {
        match self.head_of(key) {
            Ok(head) => self.search_near(key, head, self.interpolation.position(head)),
            Err(position) => position,
        }
    }

    /// The same, where it probably is the child at `position`.
    #[inline]
    pub(super) fn position_near(&self, key: &[u8], position: usize) -> usize {
        let head = match self.head_of(key) {
            Ok(head) => head,
            Err(position) => return position,
        };
        if self.is_at(head, position) {
            return position;
        }
        self.search_near(key, head, self.interpolation.position(head))
    }

    /// Returns true if a head is between the separators of the child at `position`, and equals neither.
    #[inline]
    fn is_at(&self, head: u64, position: usize) -> bool {
        let below = position.checked_sub(1).map(|before| self.heads.get(before));
        let above = self.heads.get(position);
        below.is_none_or(|below| below.is_some_and(|below| *below < head))
            && above.is_none_or(|above| head < *above)
    }

    /// Searches around a position, then everywhere.
    #[inline]
    fn search_near(&self, key: &[u8], head: u64, position: usize) -> usize {
        let from = position.saturating_sub(NEAR / 2).min(self.heads.len().saturating_sub(NEAR));
        if let Some(near) = self.heads[from..].first_chunk::<NEAR>() {
            // A binary search in three steps, without branches for the processor to mispredict.
            let mut count = 4 * usize::from(near[3] < head);
            count += 2 * usize::from(near[count + 1] < head);
            count += usize::from(near[count] < head);
            let is_inside = (count > 0 || from == 0) && (count < NEAR || from + NEAR == self.heads.len());
            // A separator with the same head may be either side of the key.
            if is_inside && self.heads.get(from + count) != Some(&head) {
                return from + count;
            }
        }
        self.search(key, head)
    }

    /// Returns the head of a key, or the position of its child if the key lacks the separators' prefix.
    #[inline]
    fn head_of(&self, key: &[u8]) -> Result<u64, usize> {
        if self.prefix > 0 {
            let shared = match self.prefix {
                0..=8 => &self.prefix_head[..],
                _ => self.separators[0].as_slice(),
            };
            match super::compare_prefix(key, shared, self.prefix) {
                Ordering::Less => return Err(0),
                Ordering::Greater => return Err(self.children.len() - 1),
                Ordering::Equal => {}
            }
        }
        Ok(super::head(&key[self.prefix..]))
    }

    fn search(&self, key: &[u8], head: u64) -> usize {
        let mut position = self.heads.partition_point(|other| *other < head);
        if self.heads.get(position) == Some(&head) {
            let ties = self.heads[position..].partition_point(|other| *other == head);
            let ties = &self.separators[position..position + ties];
            position += ties.partition_point(|separator| separator.as_slice() <= key);
        }
        position
    }

    /// Returns the keys between which all those of a child are, where this branch knows them.
    pub(super) fn bounds(&self, position: usize) -> (Option<&Bytes>, Option<&Bytes>) {
        let low = position.checked_sub(1).and_then(|low| self.separators.get(low));
        (low, self.separators.get(position))
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
            self.set_heads();
            return None;
        }
        // Ascending insertions leave full branches behind.
        let at = if position + 2 == self.children.len() { self.children.len() - 2 } else { CHILDREN_MAX / 2 };
        let right = Self::new(self.separators.split_off(at), self.children.split_off(at));
        let separator = self.separators.pop()?;
        self.set_heads();
        Some((separator, right))
    }

    /// Drops the child at `position`.
    pub(super) fn remove(&mut self, position: usize) {
        self.children.remove(position);
        if !self.separators.is_empty() {
            self.separators.remove(position.saturating_sub(1));
        }
        self.set_heads();
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
                a.set_heads();
            }
            _ => {}
        }
        self.separators.remove(left);
        self.children.remove(left + 1);
        self.set_heads();
    }
}

/// Returns the shortest key that is above `left` and not above `right`, where `left < right`.
pub(super) fn separator(left: &[u8], right: &[u8]) -> Bytes {
    let common = super::common_prefix(left, right);
    Bytes::new(&right[..right.len().min(common + 1)])
}
