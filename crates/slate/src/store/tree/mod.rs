//! A persistent B+tree from byte strings to byte strings.
//!
//! Clones share nodes, and a write copies those on its path that are shared: a snapshot is a clone. A leaf
//! has its entries in one buffer, in order, so a scan walks memory in order and an entry costs few bytes beside
//! its key and value.

mod branch;
mod cursor;
mod interpolation;
mod leaf;
mod lookup;

use std::{cmp::Ordering, sync::Arc};

use self::{
    branch::{Branch, separator},
    leaf::Leaf,
};
pub(super) use self::{
    cursor::TreeCursor,
    lookup::{TreeJoin, TreeLookup},
};
use super::bytes::Bytes;

/// Longest key.
pub(super) const KEY_LEN_MAX: usize = 24 << 10;

/// The tree.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    root: Option<Arc<Node>>,
    /// Bytes of keys and values.
    size: u64,
}

#[derive(Clone, Debug)]
enum Node {
    Leaf(Leaf),
    Branch(Branch),
}

/// Returns the first eight bytes of a key as a number, with zeros for what it lacks. Keys with different heads order
/// by them.
fn head(key: &[u8]) -> u64 {
    match key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => key.iter().fold(0, |head, byte| head << 8 | u64::from(*byte)) << (8 * (8 - key.len()) % 64),
    }
}

/// Compares keys: the first eight bytes, which mostly decide, then the last eight of short ones, as numbers.
fn compare(left: &[u8], right: &[u8]) -> Ordering {
    let (Some(left_head), Some(right_head)) = (left.first_chunk::<8>(), right.first_chunk::<8>()) else {
        return left.cmp(right);
    };
    let order = u64::from_be_bytes(*left_head).cmp(&u64::from_be_bytes(*right_head));
    if order.is_ne() {
        return order;
    }
    match (left.last_chunk::<8>(), right.last_chunk::<8>()) {
        (Some(left_tail), Some(right_tail)) if left.len() == right.len() && left.len() <= 16 => {
            u64::from_be_bytes(*left_tail).cmp(&u64::from_be_bytes(*right_tail))
        }
        _ => left.cmp(right),
    }
}

/// Compares the beginning of a key with that of another, which has at least `length` bytes.
fn compare_prefix(key: &[u8], full: &[u8], length: usize) -> Ordering {
    if let (1..=8, Some(key), Some(full)) = (length, key.first_chunk::<8>(), full.first_chunk::<8>()) {
        let shift = 8 * (8 - length);
        return (u64::from_be_bytes(*key) >> shift).cmp(&(u64::from_be_bytes(*full) >> shift));
    }
    key[..length.min(key.len())].cmp(&full[..length])
}

/// Returns how many bytes two keys share at their beginning.
fn common_prefix(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(a, b)| a == b).count()
}

/// Result of an insertion: the length of the superseded value, and a new right neighbour with its separator.
type Grown = (Option<usize>, Option<(Bytes, Arc<Node>)>);

impl Tree {
    /// Returns the bytes of all keys and values.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// Returns the value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let leaf = self.leaf_of(key)?;
        let position = leaf.search(key).ok()?;
        Some(leaf.value(position))
    }

    fn leaf_of(&self, key: &[u8]) -> Option<&Leaf> {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Leaf(leaf) => return Some(leaf),
                Node::Branch(branch) => node = &branch.children[branch.position(key)],
            }
        }
    }

    /// Sets a key.
    pub(super) fn insert(&mut self, key: &[u8], value: &[u8]) {
        let root = self.root.get_or_insert_with(|| Arc::new(Node::Leaf(Leaf::default())));
        let (replaced, split) = insert(root, key, value);
        if let Some((separator, right)) = split {
            *root = Arc::new(Node::Branch(Branch::of(Arc::clone(root), separator, right)));
        }
        match replaced {
            Some(replaced) => self.size -= replaced as u64,
            None => self.size += key.len() as u64,
        }
        self.size += value.len() as u64;
    }

    /// Removes a key. Returns true if there was one.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        // Looked for first, so that nothing is copied in vain.
        if self.get(key).is_none() {
            return false;
        }
        let Some(root) = &mut self.root else { return false };
        if let Some(removed) = remove(root, key) {
            self.size -= (key.len() + removed) as u64;
        }
        while let Node::Branch(branch) = &**root
            && let [only] = branch.children.as_slice()
        {
            *root = Arc::clone(only);
        }
        if matches!(&**root, Node::Leaf(leaf) if leaf.is_empty()) {
            self.root = None;
        }
        true
    }
}

fn insert(node: &mut Arc<Node>, key: &[u8], value: &[u8]) -> Grown {
    match Arc::make_mut(node) {
        Node::Leaf(leaf) => {
            let (replaced, right) = leaf.insert(key, value);
            let split = right.map(|right| {
                let separator = separator(leaf.last_key(), right.key(0));
                (separator, Arc::new(Node::Leaf(right)))
            });
            (replaced, split)
        }
        Node::Branch(branch) => {
            let position = branch.position(key);
            let (replaced, split) = insert(&mut branch.children[position], key, value);
            let split = split.and_then(|(separator, right)| branch.insert(position, separator, right));
            (replaced, split.map(|(separator, right)| (separator, Arc::new(Node::Branch(right)))))
        }
    }
}

/// Removes a key that exists. Returns the length of its value.
fn remove(node: &mut Arc<Node>, key: &[u8]) -> Option<usize> {
    match Arc::make_mut(node) {
        Node::Leaf(leaf) => leaf.remove(key),
        Node::Branch(branch) => {
            let position = branch.position(key);
            let removed = remove(&mut branch.children[position], key);
            let emptied = match &*branch.children[position] {
                Node::Leaf(leaf) => leaf.is_empty(),
                Node::Branch(child) => child.children.is_empty(),
            };
            if emptied {
                branch.remove(position);
            } else {
                branch.merge_child(position);
            }
            removed
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{
        super::{Cursor as _, Direction, Lookup as _, Range},
        *,
    };

    type Model = BTreeMap<Vec<u8>, Vec<u8>>;

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            (0_u16..3000).prop_map(|n| n.to_be_bytes().to_vec()),
            proptest::collection::vec(0_u8..3, 0..6),
            (0_u8..4).prop_map(|n| vec![n; 3000]),
            (0_u8..4).prop_map(|n| vec![n; KEY_LEN_MAX]),
        ]
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        (any::<u8>(), prop_oneof![4 => 0_usize..200, 1 => 900_usize..3000])
            .prop_map(|(byte, length)| vec![byte; length])
    }

    fn entries(tree: &Tree, range: &Range, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut cursor = TreeCursor::new(tree, range, direction);
        let mut entries = Vec::new();
        while cursor.advance().expect("advance") {
            entries.push((cursor.key().to_vec(), cursor.value().to_vec()));
        }
        entries
    }

    fn check(tree: &Tree, model: &Model, range: &Range) {
        let all: Vec<_> = model.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        assert_eq!(entries(tree, &Range::all(), Direction::Forward), all);
        let within = |key: &Vec<u8>| *key >= range.start && range.end.as_ref().is_none_or(|end| key < end);
        let mut part: Vec<_> = all.into_iter().filter(|(key, _)| within(key)).collect();
        assert_eq!(entries(tree, range, Direction::Forward), part);
        part.reverse();
        assert_eq!(entries(tree, range, Direction::Backward), part);
        let size: usize = model.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert_eq!(tree.size(), size as u64);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn tree_behaves_like_a_map_and_clones_do_not_change(
            writes in proptest::collection::vec((key(), proptest::option::weighted(0.7, value())), 0..600),
            looked_up in proptest::collection::vec(key(), 0..50),
            range in (key(), proptest::option::of(key())),
        ) {
            let range = Range { start: range.0, end: range.1 };
            let (mut tree, mut model) = (Tree::default(), Model::new());
            let mut snapshot = None;
            for (number, (key, value)) in writes.iter().enumerate() {
                if number == writes.len() / 2 {
                    snapshot = Some((tree.clone(), model.clone()));
                }
                match value {
                    Some(value) => {
                        tree.insert(key, value);
                        model.insert(key.clone(), value.clone());
                    }
                    None => prop_assert_eq!(tree.remove(key), model.remove(key).is_some()),
                }
            }
            check(&tree, &model, &range);
            let mut lookup = TreeLookup::new(&tree);
            for key in &looked_up {
                prop_assert_eq!(tree.get(key), model.get(key).map(Vec::as_slice));
                prop_assert_eq!(lookup.get(key).expect("get"), model.get(key).map(Vec::as_slice));
            }
            if let Some((tree, model)) = snapshot {
                check(&tree, &model, &range);
            }
            for key in model.keys() {
                prop_assert!(tree.remove(key));
            }
            prop_assert!(tree.is_empty() && tree.size() == 0);
        }
    }

    #[test]
    fn large_trees_keep_their_order_under_any_insertion_order() {
        for step in [1_u32, 7919, 99_991] {
            let (mut tree, mut model) = (Tree::default(), Model::new());
            for n in 0..30_000_u32 {
                let key = (n.wrapping_mul(step) % 30_011).to_be_bytes();
                tree.insert(&key, &n.to_le_bytes());
                model.insert(key.to_vec(), n.to_le_bytes().to_vec());
            }
            let range =
                Range { start: 500_u32.to_be_bytes().to_vec(), end: Some(20_000_u32.to_be_bytes().to_vec()) };
            check(&tree, &model, &range);
            for n in (0..30_011_u32).filter(|n| n % 10 != 0) {
                tree.remove(&n.to_be_bytes());
                model.remove(n.to_be_bytes().as_slice());
            }
            check(&tree, &model, &range);
        }
    }
}
