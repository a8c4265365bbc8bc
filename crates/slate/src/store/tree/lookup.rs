//! Look-ups, and joins with an index.

use std::hint::black_box;

use super::{
    super::{Direction, Join, Joined, KeyOf, Keys, Lookup, Range, VisitFound, bytes::Bytes},
    Branch, Leaf, Node, Tree, TreeCursor, head,
};
use crate::error::Result;

/// Look-ups that remember the branch of the last one.
pub(in super::super) struct TreeLookup<'a> {
    tree: &'a Tree,
    /// The branch above the last leaf.
    parent: Option<Parent<'a>>,
}

/// A branch above leaves.
struct Parent<'a> {
    branch: &'a Branch,
    /// Keys between which all of its own are.
    bounds: Bounds<'a>,
    /// Position of the last child.
    position: usize,
}

/// Keys from the first bound, inclusive, to the second, exclusive; nothing: without end. Each with its head.
type Bounds<'a> = (Option<(u64, &'a [u8])>, Option<(u64, &'a [u8])>);

impl<'a> TreeLookup<'a> {
    pub(in super::super) fn new(tree: &'a Tree) -> Self {
        Self { tree, parent: None }
    }

    /// Returns the leaf that has a key, if any has. Reads branches only.
    fn leaf_of(&mut self, key: &[u8]) -> Option<&'a Leaf> {
        if let Some(Parent { branch, bounds: (low, high), position }) = &mut self.parent {
            let bound = (head(key), key);
            if low.is_none_or(|low| low <= bound) && high.is_none_or(|high| bound < high) {
                *position = branch.position_near(key, *position);
                return match &*branch.children[*position] {
                    Node::Leaf(leaf) => Some(leaf),
                    Node::Branch(_) => None,
                };
            }
        }
        let (mut node, mut bounds) = (self.tree.root.as_deref()?, (None, None));
        loop {
            match node {
                Node::Leaf(leaf) => return Some(leaf),
                Node::Branch(branch) => {
                    let position = branch.position(key);
                    node = &branch.children[position];
                    self.parent = Some(Parent { branch, bounds, position });
                    let with_head = |bound: &'a Bytes| (head(bound.padded()), bound.as_slice());
                    let (low, high) = branch.bounds(position);
                    bounds = (low.map(with_head).or(bounds.0), high.map(with_head).or(bounds.1));
                }
            }
        }
    }
}

impl TreeLookup<'_> {
    /// Looks up at most [`Keys::MAX`] keys: one step of every look-up, then the next, so that their cache misses overlap.
    fn get_each(&mut self, keys: &[&[u8]], visit: VisitFound<'_>) -> Result<bool> {
        let mut leaves = [None; Keys::MAX];
        for (leaf, key) in leaves.iter_mut().zip(keys) {
            *leaf = self.leaf_of(key);
        }
        let mut guesses = [0; Keys::MAX];
        for ((guess, leaf), key) in guesses.iter_mut().zip(leaves).zip(keys) {
            *guess = leaf.map_or(0, |leaf| leaf.prefetch(key));
        }
        let mut values = [None; Keys::MAX];
        for (((value, leaf), guess), key) in values.iter_mut().zip(leaves).zip(guesses).zip(keys) {
            let Some(leaf) = leaf else { continue };
            *value = leaf.search_at(key, guess).map(|position| leaf.value(position));
        }
        for value in values.iter().flatten() {
            black_box((value.first().copied(), value.last().copied()));
        }
        for (key, value) in keys.iter().zip(values) {
            if !visit(key, value)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Lookup for TreeLookup<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>> {
        let Some(leaf) = self.leaf_of(key) else { return Ok(None) };
        Ok(leaf.search(key).ok().map(|position| leaf.value(position)))
    }

    fn get_all(&mut self, keys: &Keys, visit: VisitFound<'_>) -> Result<bool> {
        let mut all: [&[u8]; Keys::MAX] = [&[]; Keys::MAX];
        for (slot, key) in all.iter_mut().zip(keys.iter()) {
            *slot = key;
        }
        self.get_each(&all[..keys.len()], visit)
    }
}

/// A join of index entries with the values that they name.
pub(in super::super) struct TreeJoin<'a> {
    entries: TreeCursor<'a>,
    values: TreeLookup<'a>,
}

impl<'a> TreeJoin<'a> {
    pub(in super::super) fn new(
        index: &'a Tree,
        range: &Range,
        direction: Direction,
        values: &'a Tree,
    ) -> Self {
        Self { entries: TreeCursor::new(index, range, direction), values: TreeLookup::new(values) }
    }
}

impl Join for TreeJoin<'_> {
    fn next(&mut self, count: usize, key_of: KeyOf<'_>, visit: VisitFound<'_>) -> Result<Joined> {
        let mut keys: [&[u8]; Keys::MAX] = [&[]; Keys::MAX];
        let mut entries = 0;
        for slot in keys.iter_mut().take(count) {
            let Some(entry) = self.entries.next_key() else { break };
            *slot = key_of(entry)?;
            entries += 1;
        }
        let more = self.values.get_each(&keys[..entries], visit)?;
        Ok(Joined { entries, more })
    }
}
