//! Leaves: keys in one buffer and values in another, in order.
//!
//! A slot has the four bytes of its key that follow the prefix which all keys of the leaf share. They decide nearly
//! every comparison, so a search stays within the slots: few cache lines, no comparison of byte strings.

use std::{cmp::Ordering, sync::Arc};

/// Bytes of entries after which a leaf splits.
const LEAF_BYTES: usize = 4096;
/// Longest value kept among the others. A longer one is kept apart, so that inserting beside it moves little.
const INLINE_VALUE_MAX: usize = 1024;
/// Spare bytes of a buffer that had to grow.
const SPARE_BYTES: usize = 128;
/// Entries looked at where a key probably is, before the leaf is searched.
const NEAR: usize = 3;
/// Spare slots of a list that had to grow.
const SPARE_SLOTS: usize = 8;

/// A leaf.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaf {
    slots: Vec<Slot>,
    keys: Vec<u8>,
    values: Vec<u8>,
    /// Long values, by the position of their entry.
    apart: Vec<(u16, Arc<[u8]>)>,
    /// Position after the last insertion, to recognise ascending ones.
    next: u16,
    /// Bytes that every key begins with; heads follow them.
    prefix: u16,
    /// The first eight bytes of that prefix, and perhaps some more.
    prefix_head: [u8; 8],
}

/// Beginnings of an entry's key and value; they end where the next entry's begin.
///
/// Two bytes suffice: a key has at most 24 KiB, and no more than one such key joins the bytes of a leaf
/// before it splits.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The key's bytes after the leaf's prefix, as a number.
    head: u32,
    key: u16,
    value: u16,
}

/// Returns the four bytes of a key after a prefix as a number. Keys with different heads order by them.
fn head(key: &[u8], prefix: usize) -> u32 {
    match key.get(prefix..).and_then(<[u8]>::first_chunk::<4>) {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => (super::head(key.get(prefix..).unwrap_or_default()) >> 32) as u32,
    }
}

impl Leaf {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn bytes(&self) -> usize {
        self.keys.len() + self.values.len() + self.slots.len() * size_of::<Slot>()
    }

    /// Returns true if another leaf's entries fit in here with room to spare.
    pub(super) fn has_room_for(&self, other: &Self) -> bool {
        self.bytes() + other.bytes() <= LEAF_BYTES / 4 * 3
    }

    /// Returns true if the leaf should be merged with a neighbour.
    pub(super) fn is_small(&self) -> bool {
        self.bytes() < LEAF_BYTES / 4
    }

    fn is_full(&self) -> bool {
        self.bytes() > LEAF_BYTES && self.len() > 1
    }

    /// Returns where an entry begins; the entry after the last begins at the end.
    fn slot(&self, position: usize) -> Slot {
        let end = || Slot { head: 0, key: self.keys.len() as u16, value: self.values.len() as u16 };
        self.slots.get(position).copied().unwrap_or_else(end)
    }

    pub(super) fn key(&self, position: usize) -> &[u8] {
        let (from, to) = (self.slots[position].key, self.slot(position + 1).key);
        &self.keys[usize::from(from)..usize::from(to)]
    }

    pub(super) fn value(&self, position: usize) -> &[u8] {
        if !self.apart.is_empty()
            && let Ok(found) = self.apart.binary_search_by_key(&position, |(at, _)| usize::from(*at))
        {
            return &self.apart[found].1;
        }
        let (from, to) = (self.slots[position].value, self.slot(position + 1).value);
        &self.values[usize::from(from)..usize::from(to)]
    }

    pub(super) fn entry(&self, position: usize) -> (&[u8], &[u8]) {
        (self.key(position), self.value(position))
    }

    pub(super) fn last_key(&self) -> &[u8] {
        self.key(self.len() - 1)
    }

    /// Finds a key: its position, or the one where it would be inserted.
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let prefix = usize::from(self.prefix);
        if prefix > 0 {
            let known = if prefix <= 8 { &self.prefix_head[..] } else { &self.keys };
            match super::compare_prefix(key, known, prefix) {
                Ordering::Less => return Err(0),
                Ordering::Greater => return Err(self.len()),
                Ordering::Equal => {}
            }
        }
        let head = head(key, prefix);
        let mut low = self.slots.partition_point(|slot| slot.head < head);
        // As a rule one entry has this head.
        match self.slots.get(low) {
            Some(slot) if slot.head == head => match super::compare(self.key(low), key) {
                Ordering::Less => low += 1,
                Ordering::Equal => return Ok(low),
                Ordering::Greater => return Err(low),
            },
            _ => return Err(low),
        }
        let mut high = low + self.slots[low..].partition_point(|slot| slot.head == head);
        while low < high {
            let middle = usize::midpoint(low, high);
            match super::compare(self.key(middle), key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Reads a slot, so that a search finds the slots in the cache.
    pub(super) fn touch_slots(&self) {
        std::hint::black_box(self.slots.get(self.slots.len() / 2).map(|slot| slot.head));
    }

    /// Finds a key, where it probably is at `position` or soon after.
    pub(super) fn search_near(&self, key: &[u8], position: usize) -> Option<usize> {
        for position in position..self.len().min(position + NEAR) {
            match super::compare(self.key(position), key) {
                Ordering::Less => {}
                Ordering::Equal => return Some(position),
                Ordering::Greater => break,
            }
        }
        self.search(key).ok()
    }

    /// Makes the prefix as long as a new key leaves it, and returns that key's head.
    fn admit(&mut self, key: &[u8]) -> u32 {
        let shared = match self.is_empty() {
            true => key.len(),
            false => super::common_prefix(&self.keys[..usize::from(self.prefix)], key),
        };
        if shared < usize::from(self.prefix) || self.is_empty() {
            self.set_prefix(shared);
            self.prefix_head = super::head(key).to_be_bytes();
        }
        head(key, shared)
    }

    /// Sets the prefix, and every slot's head.
    fn set_prefix(&mut self, prefix: usize) {
        self.prefix = prefix as u16;
        for position in 0..self.len() {
            self.slots[position].head = head(self.key(position), prefix);
        }
    }

    /// Makes the prefix as long as possible.
    fn lengthen_prefix(&mut self) {
        if !self.is_empty() {
            self.set_prefix(super::common_prefix(self.key(0), self.last_key()));
            self.prefix_head = super::head(self.key(0)).to_be_bytes();
        }
    }

    /// Returns the position of the first key that is not below this one.
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        self.search(key).unwrap_or_else(|position| position)
    }

    /// Sets a key. Returns the length of the value that it had, and the right half if the leaf had to split.
    pub(super) fn insert(&mut self, key: &[u8], value: &[u8]) -> (Option<usize>, Option<Self>) {
        // Beyond, offsets would wrap. The engine bounds `_id`s and index keys.
        assert!(key.len() <= super::KEY_LEN_MAX, "a key of {} bytes", key.len());
        let (position, replaced) = match self.search(key) {
            Ok(position) => {
                let replaced = self.value(position).len();
                self.remove_at(position);
                (position, Some(replaced))
            }
            Err(position) => (position, None),
        };
        self.insert_at(position, key, value);
        let ascending = replaced.is_none() && usize::from(self.next) == position;
        self.next = position as u16 + 1;
        let right = self.is_full().then(|| self.split(ascending.then_some(position + 1)));
        (replaced, right)
    }

    fn insert_at(&mut self, position: usize, key: &[u8], value: &[u8]) {
        let at = Slot { head: self.admit(key), ..self.slot(position) };
        for (place, _) in &mut self.apart {
            *place += u16::from(usize::from(*place) >= position);
        }
        let inline = if value.len() <= INLINE_VALUE_MAX {
            value
        } else {
            let place = self.apart.partition_point(|(place, _)| usize::from(*place) < position);
            self.apart.insert(place, (position as u16, Arc::from(value)));
            &[]
        };
        insert_bytes(&mut self.keys, usize::from(at.key), key);
        insert_bytes(&mut self.values, usize::from(at.value), inline);
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(SPARE_SLOTS);
        }
        self.slots.insert(position, at);
        for slot in &mut self.slots[position + 1..] {
            slot.key += key.len() as u16;
            slot.value += inline.len() as u16;
        }
    }

    /// Removes a key. Returns the length of its value.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<usize> {
        let position = self.search(key).ok()?;
        let removed = self.value(position).len();
        self.remove_at(position);
        Some(removed)
    }

    fn remove_at(&mut self, position: usize) {
        let (from, to) = (self.slot(position), self.slot(position + 1));
        self.apart.retain(|(place, _)| usize::from(*place) != position);
        for (place, _) in &mut self.apart {
            *place -= u16::from(usize::from(*place) > position);
        }
        self.keys.drain(usize::from(from.key)..usize::from(to.key));
        self.values.drain(usize::from(from.value)..usize::from(to.value));
        self.slots.remove(position);
        for slot in &mut self.slots[position..] {
            slot.key -= to.key - from.key;
            slot.value -= to.value - from.value;
        }
        if self.is_empty() {
            self.prefix = 0;
        }
    }

    /// Splits, at a position or in the middle, and returns the right half. Ascending insertions split behind
    /// the last one, which leaves full leaves behind.
    fn split(&mut self, at: Option<usize>) -> Self {
        let ascending = at.is_some();
        let at = match at {
            Some(at) if at == self.len() => at - 1,
            Some(at) => at,
            None => {
                let middle = (self.keys.len() + self.values.len()) / 2;
                self.slots.partition_point(|slot| usize::from(slot.key) + usize::from(slot.value) < middle)
            }
        };
        let at = at.clamp(1, self.len() - 1);
        let right = self.copy(at..self.len(), true);
        // A full leaf that an ascending run leaves behind stays as it is.
        *self = self.copy(0..at, !ascending);
        // The next of an ascending run comes after the last of this half.
        self.next = self.len() as u16;
        right
    }

    fn copy(&self, positions: std::ops::Range<usize>, grows: bool) -> Self {
        let (from, to) = (self.slot(positions.start), self.slot(positions.end));
        let (slots, bytes) = if grows { (SPARE_SLOTS, SPARE_BYTES) } else { (0, 0) };
        let mut copy = Self::default();
        copy.slots.reserve_exact(positions.len() + slots);
        copy.keys.reserve_exact(usize::from(to.key - from.key) + bytes);
        // An index has no values.
        let values = usize::from(to.value - from.value);
        copy.values.reserve_exact(if values == 0 { 0 } else { values + bytes });
        copy.append(self, positions);
        copy.lengthen_prefix();
        copy
    }

    /// Appends entries of another leaf, all of whose keys are above this one's.
    fn append(&mut self, other: &Self, positions: std::ops::Range<usize>) {
        let (from, to) = (other.slot(positions.start), other.slot(positions.end));
        let (keys, values) = (self.keys.len() as u16, self.values.len() as u16);
        let count = self.len();
        let within = |place: &u16| positions.contains(&usize::from(*place));
        let apart = other.apart.iter().filter(|(place, _)| within(place));
        let moved = |place: u16| (usize::from(place) - positions.start + count) as u16;
        self.apart.extend(apart.map(|(place, value)| (moved(*place), Arc::clone(value))));
        self.slots.extend(other.slots[positions.clone()].iter().map(|slot| Slot {
            head: 0,
            key: slot.key - from.key + keys,
            value: slot.value - from.value + values,
        }));
        self.keys.extend_from_slice(&other.keys[usize::from(from.key)..usize::from(to.key)]);
        self.values.extend_from_slice(&other.values[usize::from(from.value)..usize::from(to.value)]);
    }

    /// Takes over the entries of the next leaf.
    pub(super) fn merge(&mut self, next: &Self) {
        self.append(next, 0..next.len());
        self.lengthen_prefix();
    }
}

/// Inserts bytes, and lets the buffer grow by little.
fn insert_bytes(buffer: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = buffer.len();
    if buffer.capacity() - end < bytes.len() {
        buffer.reserve_exact(bytes.len() + SPARE_BYTES);
    }
    buffer.resize(end + bytes.len(), 0);
    buffer.copy_within(at..end, at + bytes.len());
    buffer[at..at + bytes.len()].copy_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascending_insertions_leave_full_leaves() {
        let (mut leaf, mut filled) = (Leaf::default(), Vec::new());
        for n in 0..2000_u32 {
            if let (_, Some(right)) = leaf.insert(&n.to_be_bytes(), &[0; 100]) {
                filled.push(std::mem::replace(&mut leaf, right).bytes());
            }
        }
        assert!(filled.len() > 40 && filled.iter().all(|bytes| *bytes > LEAF_BYTES * 9 / 10), "{filled:?}");
    }
}
