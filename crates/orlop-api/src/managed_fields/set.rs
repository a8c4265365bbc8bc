//! Field sets: sorted trees of paths.
//!
//! A node is a member itself, or has descendants that are, or both.
//! Other nodes are removed, so equal sets are equal trees. Every operation
//! walks both trees once.

use super::path_element::{Path, PathElement};
use std::cmp::Ordering;
use std::fmt;

/// A path element and its children.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub element: PathElement,
    pub member: bool,
    pub children: Set,
}

/// A field set (SMD's fieldpath.Set).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    nodes: Vec<Node>,
}

impl Set {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn from_paths(paths: impl IntoIterator<Item = Path>) -> Self {
        let mut set = Self::new();
        for path in paths {
            set.insert(&path.0);
        }
        set
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of paths in the set.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.member) + node.children.len()).sum()
    }

    fn find(&self, element: &PathElement) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    /// Adds a node and merges it with an equal element. Appending in order is cheap.
    pub fn push(&mut self, node: Node) {
        if !node.member && node.children.is_empty() {
            return;
        }
        let at = match self.nodes.last().map(|last| last.element.cmp(&node.element)) {
            None | Some(Ordering::Less) => Err(self.nodes.len()),
            Some(_) => self.find(&node.element),
        };
        match at {
            Err(index) => self.nodes.insert(index, node),
            Ok(index) => {
                let found = &mut self.nodes[index];
                found.member |= node.member;
                let children = std::mem::take(&mut found.children);
                found.children =
                    if children.is_empty() { node.children } else { children.union(&node.children) };
            }
        }
    }

    /// Adds a path. The empty path is ignored.
    pub fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let index = match self.find(first) {
            Ok(index) => index,
            Err(index) => {
                self.nodes
                    .insert(index, Node { element: first.clone(), member: false, children: Self::new() });
                index
            }
        };
        let node = &mut self.nodes[index];
        if rest.is_empty() {
            node.member = true;
        } else {
            node.children.insert(rest);
        }
    }

    pub fn node(&self, element: &PathElement) -> Option<&Node> {
        self.find(element).ok().map(|index| &self.nodes[index])
    }

    /// Returns whether exactly this path is in the set.
    pub fn has(&self, path: &[PathElement]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        self.node(first)
            .is_some_and(|node| if rest.is_empty() { node.member } else { node.children.has(rest) })
    }

    pub fn union(&self, other: &Self) -> Self {
        self.combine(other, |left, right| match (left, right) {
            (Some(left), Some(right)) => Some(Node {
                element: left.element.clone(),
                member: left.member || right.member,
                children: left.children.union(&right.children),
            }),
            (one, another) => one.or(another).cloned(),
        })
    }

    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |left, right| {
            let (left, right) = (left?, right?);
            let children = left.children.intersection(&right.children);
            Some(Node { element: left.element.clone(), member: left.member && right.member, children })
        })
    }

    /// Returns the paths that are not in the other set. A parent in the other set does not remove its children.
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |left, right| {
            let left = left?;
            let Some(right) = right else { return Some(left.clone()) };
            let children = left.children.difference(&right.children);
            Some(Node { element: left.element.clone(), member: left.member && !right.member, children })
        })
    }

    /// Like [`Self::difference`], but a path in the other set removes its descendants.
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, |left, right| {
            let left = left?;
            let Some(right) = right else { return Some(left.clone()) };
            if right.member {
                return None;
            }
            let children = left.children.recursive_difference(&right.children);
            Some(Node { element: left.element.clone(), member: left.member, children })
        })
    }

    /// Returns whether two sets share a path, without building the intersection.
    pub fn intersects(&self, other: &Self) -> bool {
        let (mut left, mut right) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        while let (Some(one), Some(another)) = (left.peek(), right.peek()) {
            match one.element.cmp(&another.element) {
                Ordering::Less => drop(left.next()),
                Ordering::Greater => drop(right.next()),
                Ordering::Equal => {
                    if (one.member && another.member) || one.children.intersects(&another.children) {
                        return true;
                    }
                    left.next();
                    right.next();
                }
            }
        }
        false
    }

    /// Removes the paths of another set in place, without copying the rest.
    pub fn subtract(&mut self, other: &Self) {
        let mut emptied = false;
        for node in &other.nodes {
            let Ok(index) = self.find(&node.element) else { continue };
            let found = &mut self.nodes[index];
            found.member &= !node.member;
            found.children.subtract(&node.children);
            emptied |= !found.member && found.children.is_empty();
        }
        if emptied {
            self.nodes.retain(|node| node.member || !node.children.is_empty());
        }
    }

    /// Returns the paths without descendants in the set.
    pub fn leaves(&self) -> Self {
        let nodes = self.nodes.iter().map(|node| Node {
            element: node.element.clone(),
            member: node.member && node.children.is_empty(),
            children: node.children.leaves(),
        });
        Self { nodes: nodes.collect() }
    }

    /// Walks both sets in order; `choose` builds the node of each element.
    fn combine(&self, other: &Self, choose: impl Fn(Option<&Node>, Option<&Node>) -> Option<Node>) -> Self {
        let mut nodes = Vec::with_capacity(self.nodes.len());
        let (mut left, mut right) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (None, None) => break,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(left), Some(right)) => left.element.cmp(&right.element),
            };
            let chosen = match order {
                Ordering::Less => choose(left.next(), None),
                Ordering::Greater => choose(None, right.next()),
                Ordering::Equal => choose(left.next(), right.next()),
            };
            nodes.extend(chosen.filter(|node| node.member || !node.children.is_empty()));
        }
        Self { nodes }
    }

    /// Calls `visit` with every path, parents before their children.
    pub fn for_each(&self, mut visit: impl FnMut(&[PathElement])) {
        fn walk(set: &Set, path: &mut Vec<PathElement>, visit: &mut impl FnMut(&[PathElement])) {
            for node in set.nodes.iter().filter(|node| node.member) {
                path.push(node.element.clone());
                visit(path);
                path.pop();
            }
            for node in set.nodes.iter().filter(|node| !node.children.is_empty()) {
                path.push(node.element.clone());
                walk(&node.children, path, visit);
                path.pop();
            }
        }
        walk(self, &mut Vec::new(), &mut visit);
    }

    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.for_each(|path| paths.push(Path(path.to_vec())));
        paths
    }

    /// Maps the nodes; empty nodes are removed.
    pub fn map_nodes(&self, change: impl FnMut(&Node) -> Node) -> Self {
        let nodes = self.nodes.iter().map(change).filter(|node| node.member || !node.children.is_empty());
        Self { nodes: nodes.collect() }
    }
}

/// Formats one path per line.
impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.paths().iter().map(ToString::to_string).collect();
        f.write_str(&paths.join("\n"))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Sets over a small alphabet, so that they overlap.
    pub(crate) fn sets() -> impl Strategy<Value = Set> {
        let path = proptest::collection::vec("[abc]", 1..4);
        proptest::collection::vec(path, 0..8).prop_map(|paths| {
            Set::from_paths(
                paths
                    .iter()
                    .map(|path| Path::of_fields(&path.iter().map(String::as_str).collect::<Vec<_>>())),
            )
        })
    }

    fn plain(set: &Set) -> BTreeSet<Path> {
        set.paths().into_iter().collect()
    }

    fn set(paths: &[&[&str]]) -> Set {
        Set::from_paths(paths.iter().map(|path| Path::of_fields(path)))
    }

    #[test]
    fn recursive_difference_removes_descendants() {
        let owned = set(&[&["a"], &["a", "b"], &["a", "b", "c"], &["d"]]);
        assert_eq!(owned.recursive_difference(&set(&[&["a", "b"]])), set(&[&["a"], &["d"]]));
        assert_eq!(owned.difference(&set(&[&["a", "b"]])), set(&[&["a"], &["a", "b", "c"], &["d"]]));
        assert_eq!(owned.leaves(), set(&[&["a", "b", "c"], &["d"]]));
        assert_eq!(owned.len(), 4);
        assert_eq!(owned.to_string(), ".a\n.d\n.a.b\n.a.b.c");
    }

    proptest! {
        #[test]
        fn algebra_matches_plain_sets(left in sets(), right in sets()) {
            let (a, b) = (plain(&left), plain(&right));
            prop_assert_eq!(plain(&left.union(&right)), a.union(&b).cloned().collect::<BTreeSet<_>>());
            prop_assert_eq!(plain(&left.intersection(&right)), a.intersection(&b).cloned().collect::<BTreeSet<_>>());
            prop_assert_eq!(plain(&left.difference(&right)), a.difference(&b).cloned().collect::<BTreeSet<_>>());
            let mut less = left.clone();
            less.subtract(&right);
            prop_assert_eq!(less, left.difference(&right));
            prop_assert_eq!(left.intersects(&right), a.intersection(&b).next().is_some());
            for path in &a {
                prop_assert!(left.has(&path.0));
            }
            prop_assert_eq!(Set::from_paths(left.paths()), left);
        }
    }
}
