//! Cursors and look-ups.

use std::cmp::Ordering;

use super::{
    super::{Cursor, Direction, Lookup, Range},
    Branch, Leaf, Node, Tree, compare,
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

/// Entries looked at after the last one, before a leaf is searched.
const NEAR: usize = 3;

/// Look-ups that remember their place.
pub(in super::super) struct TreeLookup<'a> {
    tree: &'a Tree,
    leaf: Option<&'a Leaf>,
    /// Position after the last entry found.
    next: usize,
}

impl<'a> TreeLookup<'a> {
    pub(in super::super) fn new(tree: &'a Tree) -> Self {
        Self { tree, leaf: None, next: 0 }
    }

    /// Finds a key in the leaf of the last look-up. Nothing: it belongs to another leaf.
    fn near(&self, key: &[u8]) -> Option<(&'a Leaf, Option<usize>)> {
        let leaf = self.leaf?;
        for position in self.next..leaf.len().min(self.next + NEAR) {
            match compare(leaf.key(position), key) {
                Ordering::Less => {}
                Ordering::Equal => return Some((leaf, Some(position))),
                Ordering::Greater => break,
            }
        }
        let within = compare(leaf.key(0), key).is_le() && compare(key, leaf.last_key()).is_le();
        within.then(|| (leaf, leaf.search(key).ok()))
    }
}

impl Lookup for TreeLookup<'_> {
    fn get(&mut self, key: &[u8]) -> Result<Option<&[u8]>> {
        let found = self.near(key).or_else(|| {
            let leaf = self.tree.leaf_of(key)?;
            Some((leaf, leaf.search(key).ok()))
        });
        let Some((leaf, position)) = found else { return Ok(None) };
        self.leaf = Some(leaf);
        Ok(position.map(|position| {
            self.next = position + 1;
            leaf.value(position)
        }))
    }
}
