//! Cursors and look-ups.

use std::hint::black_box;

use super::{
    super::{Cursor, Direction, Keys, Lookup, Range, VisitFound, bytes::Bytes},
    Branch, Leaf, Node, Tree, head,
};
use crate::error::Result;

/// A cursor over a range.
pub(in super::super) struct TreeCursor<'a> {
    root: Option<&'a Node>,
    /// Branches from the root to the leaf, with the position of the child taken.
    path: Vec<(&'a Branch, usize)>,
    leaf: Option<&'a Leaf>,
    /// Positions of the leaf that are still to come.
    rest: std::ops::Range<usize>,
    /// Bound of the range on the side that the cursor moves to: exclusive end, or inclusive start.
    bound: Option<Vec<u8>>,
    direction: Direction,
    entry: (&'a [u8], &'a [u8]),
}

impl<'a> TreeCursor<'a> {
    pub(in super::super) fn new(tree: &'a Tree, range: &Range, direction: Direction) -> Self {
        let bound = match direction {
            Direction::Forward => range.end.clone(),
            Direction::Backward => (!range.start.is_empty()).then(|| range.start.clone()),
        };
        let mut cursor = Self {
            root: None,
            path: Vec::new(),
            leaf: None,
            rest: 0..0,
            bound,
            direction,
            entry: (&[], &[]),
        };
        if let Some(root) = tree.root.as_deref().filter(|_| !range.is_empty()) {
            cursor.root = Some(root);
            let from = match direction {
                Direction::Forward => Some(range.start.as_slice()),
                Direction::Backward => range.end.as_deref(),
            };
            cursor.descend(root, from);
        }
        cursor
    }

    /// Goes down to the leaf with a key, or to the outermost one.
    fn descend(&mut self, mut node: &'a Node, key: Option<&[u8]>) {
        loop {
            match node {
                Node::Branch(branch) => {
                    let position = match (key, self.direction) {
                        (Some(key), _) => branch.position(key),
                        (None, Direction::Forward) => 0,
                        (None, Direction::Backward) => branch.children.len() - 1,
                    };
                    self.path.push((branch, position));
                    node = &branch.children[position];
                }
                Node::Leaf(leaf) => {
                    self.enter(leaf, key);
                    return;
                }
            }
        }
    }

    /// Takes the part of a leaf that is within the range.
    fn enter(&mut self, leaf: &'a Leaf, from: Option<&[u8]>) {
        let from = from.map(|from| leaf.lower_bound(from));
        self.rest = match self.direction {
            Direction::Forward => {
                let end = match &self.bound {
                    Some(end) if !leaf.is_empty() && leaf.last_key() >= end.as_slice() => {
                        leaf.lower_bound(end)
                    }
                    _ => leaf.len(),
                };
                from.unwrap_or(0)..end
            }
            Direction::Backward => {
                let start = match &self.bound {
                    Some(start) if !leaf.is_empty() && leaf.key(0) < start.as_slice() => {
                        leaf.lower_bound(start)
                    }
                    _ => 0,
                };
                start..from.unwrap_or(leaf.len())
            }
        };
        self.leaf = Some(leaf);
    }

    /// Returns true if keys of the range may follow in the next leaf.
    fn continues(&self, leaf: &Leaf) -> bool {
        match (&self.bound, self.direction) {
            (None, _) => true,
            (Some(end), Direction::Forward) => leaf.last_key() < end.as_slice(),
            (Some(start), Direction::Backward) => leaf.key(0) >= start.as_slice(),
        }
    }

    /// Goes on to the next leaf. Returns false at the end of the tree.
    fn next_leaf(&mut self) -> bool {
        while let Some((branch, position)) = self.path.pop() {
            let next = match self.direction {
                Direction::Forward => Some(position + 1).filter(|next| *next < branch.children.len()),
                Direction::Backward => position.checked_sub(1),
            };
            if let Some(next) = next {
                self.path.push((branch, next));
                self.descend(&branch.children[next], None);
                return true;
            }
        }
        false
    }
}

impl Cursor for TreeCursor<'_> {
    fn advance(&mut self) -> Result<bool> {
        let Some(mut leaf) = self.leaf else { return Ok(false) };
        loop {
            let position = match self.direction {
                Direction::Forward => self.rest.next(),
                Direction::Backward => self.rest.next_back(),
            };
            if let Some(position) = position {
                self.entry = leaf.entry(position);
                return Ok(true);
            }
            if !self.continues(leaf) || !self.next_leaf() {
                self.leaf = None;
                return Ok(false);
            }
            match self.leaf {
                Some(next) => leaf = next,
                None => return Ok(false),
            }
        }
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let (Some(root), Some(leaf)) = (self.root, self.leaf) else { return Ok(false) };
        if leaf.last_key() >= key {
            self.rest.start = self.rest.start.max(leaf.lower_bound(key)).min(self.rest.end);
        } else {
            self.path.clear();
            self.descend(root, Some(key));
        }
        self.advance()
    }

    fn key(&self) -> &[u8] {
        self.entry.0
    }

    fn value(&self) -> &[u8] {
        self.entry.1
    }
}

/// Look-ups that remember their place.
pub(in super::super) struct TreeLookup<'a> {
    tree: &'a Tree,
    /// The branch above the last leaf.
    parent: Option<Parent<'a>>,
    /// The leaf of the last entry found, and the position after it.
    found: Option<(&'a Leaf, usize)>,
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
        Self { tree, parent: None, found: None }
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

impl Lookup for TreeLookup<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>> {
        let Some(leaf) = self.leaf_of(key) else { return Ok(None) };
        Ok(leaf.search(key).ok().map(|position| leaf.value(position)))
    }

    /// Does one step of every look-up, then the next, so that their cache misses overlap.
    fn get_all(&mut self, keys: &Keys, visit: VisitFound<'_>) -> Result<bool> {
        let mut leaves = [None; Keys::MAX];
        for (leaf, key) in leaves.iter_mut().zip(keys.iter()) {
            *leaf = self.leaf_of(key);
        }
        for leaf in leaves.iter().flatten() {
            black_box(leaf.len());
        }
        for leaf in leaves.iter().flatten() {
            leaf.touch_slots();
        }
        let mut values = [None; Keys::MAX];
        for ((value, leaf), key) in values.iter_mut().zip(leaves).zip(keys.iter()) {
            let Some(leaf) = leaf else { continue };
            let position = match self.found {
                Some((last, next)) if std::ptr::eq(last, leaf) => leaf.search_near(key, next),
                _ => leaf.search(key).ok(),
            };
            if let Some(position) = position {
                self.found = Some((leaf, position + 1));
                *value = Some(leaf.value(position));
            }
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
