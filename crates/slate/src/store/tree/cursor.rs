//! Cursors.

use super::{
    super::{Cursor, Direction, Range},
    Branch, Leaf, Node, Tree,
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

    /// Moves to the next entry and returns its key. Nothing: the end.
    pub(super) fn next_key(&mut self) -> Option<&'a [u8]> {
        let (leaf, position) = self.step()?;
        Some(leaf.key(position))
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

    /// Moves to the next position.
    #[inline]
    fn step(&mut self) -> Option<(&'a Leaf, usize)> {
        loop {
            let leaf = self.leaf?;
            let position = match self.direction {
                Direction::Forward => self.rest.next(),
                Direction::Backward => self.rest.next_back(),
            };
            if let Some(position) = position {
                return Some((leaf, position));
            }
            if !self.continues(leaf) || !self.next_leaf() {
                self.leaf = None;
            }
        }
    }
}

impl Cursor for TreeCursor<'_> {
    fn advance(&mut self) -> Result<bool> {
        let Some((leaf, position)) = self.step() else { return Ok(false) };
        self.entry = leaf.entry(position);
        Ok(true)
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
