//! Leaves: entries in one buffer, in order, each a key and then its value.
//!
//! A slot has the four bytes of its key that follow the prefix which all keys of the leaf share. They decide nearly
//! every comparison, so a search stays within the slots: few cache lines, no comparison of byte strings. It begins
//! with interpolation, which finds evenly spread keys at once. A key lies beside its value, so comparing the one
//! brings the other into the cache.

use std::{cmp::Ordering, hint::black_box, sync::Arc};

use super::interpolation::Interpolation;

/// Bytes of entries after which a leaf splits.
const LEAF_BYTES: usize = 4096;
/// Longest value stored inline. A longer one is an overflow value, so that inserting beside it moves little.
const INLINE_VALUE_MAX: usize = 1024;
/// Spare bytes of a buffer that had to grow.
const SPARE_BYTES: usize = 128;
/// Spare slots of a list that had to grow.
const SPARE_SLOTS: usize = 8;

/// A leaf.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaf {
    slots: Vec<Slot>,
    /// Keys and values.
    entries: Vec<u8>,
    interpolation: Interpolation,
    /// Overflow values, by the position of their entry.
    overflow: Vec<(u16, Arc<[u8]>)>,
    /// Position after the last insertion, to recognise ascending ones.
    next: u16,
    /// Bytes that every key begins with; heads follow them.
    prefix: u16,
    /// The first eight bytes of that prefix, and perhaps some more.
    prefix_head: [u8; 8],
}

/// Place of an entry; it ends where the next one begins.
///
/// Two bytes suffice: a key has at most 24 KiB, and no more than one such key joins the bytes of a leaf
/// before it splits.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The key's bytes after the leaf's prefix, as a number.
    head: u32,
    /// Beginning of the entry.
    start: u16,
    key_len: u16,
}

/// Returns the four bytes of a key after a prefix as a number. Keys with different heads order by them.
fn head(key: &[u8], prefix: usize) -> u32 {
    match key.get(prefix..).and_then(<[u8]>::first_chunk::<4>) {
        Some(bytes) => u32::from_be_bytes(*bytes),
        None => (super::head(key.get(prefix..).unwrap_or_default()) >> 32) as u32,
    }
}

impl Leaf {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn bytes(&self) -> usize {
        self.entries.len() + self.slots.len() * size_of::<Slot>()
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

    /// Returns the offset where an entry begins; the entry after the last begins at the end.
    #[inline]
    fn start(&self, position: usize) -> usize {
        self.slots.get(position).map_or(self.entries.len(), |slot| usize::from(slot.start))
    }

    #[inline]
    pub(super) fn key(&self, position: usize) -> &[u8] {
        let slot = self.slots[position];
        &self.entries[usize::from(slot.start)..][..usize::from(slot.key_len)]
    }

    #[inline]
    pub(super) fn value(&self, position: usize) -> &[u8] {
        self.entry(position).1
    }

    #[inline]
    pub(super) fn entry(&self, position: usize) -> (&[u8], &[u8]) {
        let slot = self.slots[position];
        let entry = &self.entries[usize::from(slot.start)..self.start(position + 1)];
        let (key, value) = entry.split_at(usize::from(slot.key_len));
        (key, if self.overflow.is_empty() { value } else { self.overflow_value(position).unwrap_or(value) })
    }

    fn overflow_value(&self, position: usize) -> Option<&[u8]> {
        let found = self.overflow.binary_search_by_key(&position, |(place, _)| usize::from(*place)).ok()?;
        Some(&self.overflow[found].1)
    }

    pub(super) fn last_key(&self) -> &[u8] {
        self.key(self.len() - 1)
    }

    /// Finds a key: its position, or the one where it would be inserted.
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let head = self.head_of(key)?;
        let guess = self.guess(head);
        if self.slots.get(guess).is_some_and(|slot| slot.head == head)
            && super::compare(self.key(guess), key).is_eq()
        {
            return Ok(guess);
        }
        self.binary_search(key, head)
    }

    /// Returns the head of a key, or the position where it would be if it lacks the leaf's prefix.
    #[inline]
    fn head_of(&self, key: &[u8]) -> Result<u32, usize> {
        let prefix = usize::from(self.prefix);
        if prefix > 0 {
            let shared = if prefix <= 8 { &self.prefix_head[..] } else { &self.entries };
            match super::compare_prefix(key, shared, prefix) {
                Ordering::Less => return Err(0),
                Ordering::Greater => return Err(self.len()),
                Ordering::Equal => {}
            }
        }
        Ok(head(key, prefix))
    }

    /// Returns a position where a head may be.
    #[inline]
    fn guess(&self, head: u32) -> usize {
        let guess = self.interpolation.position(u64::from(head));
        // Rounding errs by one at most; the neighbour is in the same cache line, as a rule.
        match self.slots.get(guess) {
            Some(slot) if slot.head < head => guess + 1,
            Some(slot) if slot.head > head => guess.saturating_sub(1),
            _ => guess,
        }
    }

    fn binary_search(&self, key: &[u8], head: u32) -> Result<usize, usize> {
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

    /// Returns the position where a key probably is, and brings its entry into the cache.
    #[inline]
    pub(super) fn prefetch(&self, key: &[u8]) -> usize {
        let Ok(head) = self.head_of(key) else { return 0 };
        let guess = self.guess(head);
        black_box(self.entries.get(self.start(guess)).copied());
        guess
    }

    /// Finds a key that probably is at `position`.
    #[inline]
    pub(super) fn search_at(&self, key: &[u8], position: usize) -> Option<usize> {
        if position < self.len() && super::compare(self.key(position), key).is_eq() {
            return Some(position);
        }
        self.search(key).ok()
    }

    /// Makes the prefix as long as a new key leaves it, and returns that key's head.
    fn shorten_prefix(&mut self, key: &[u8]) -> u32 {
        let shared = match self.is_empty() {
            true => key.len(),
            false => super::common_prefix(&self.entries[..usize::from(self.prefix)], key),
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
            self.interpolate();
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
        self.interpolate();
        let ascending = replaced.is_none() && usize::from(self.next) == position;
        self.next = position as u16 + 1;
        let right = self.is_full().then(|| self.split(ascending.then_some(position + 1)));
        (replaced, right)
    }

    fn insert_at(&mut self, position: usize, key: &[u8], value: &[u8]) {
        let (head, start) = (self.shorten_prefix(key), self.start(position));
        for (place, _) in &mut self.overflow {
            *place += u16::from(usize::from(*place) >= position);
        }
        let inline = if value.len() <= INLINE_VALUE_MAX {
            value
        } else {
            let place = self.overflow.partition_point(|(place, _)| usize::from(*place) < position);
            self.overflow.insert(place, (position as u16, Arc::from(value)));
            &[]
        };
        insert_bytes(&mut self.entries, start, key, inline);
        if self.slots.len() == self.slots.capacity() {
            self.slots.reserve_exact(SPARE_SLOTS);
        }
        self.slots.insert(position, Slot { head, start: start as u16, key_len: key.len() as u16 });
        for slot in &mut self.slots[position + 1..] {
            slot.start += (key.len() + inline.len()) as u16;
        }
    }

    /// Sets the interpolation, after a change of the slots.
    fn interpolate(&mut self) {
        self.interpolation = match self.slots.as_slice() {
            [first, .., last] => Interpolation::new(first.head.into(), last.head.into(), self.slots.len()),
            _ => Interpolation::default(),
        };
    }

    /// Removes a key. Returns the length of its value.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<usize> {
        let position = self.search(key).ok()?;
        let removed = self.value(position).len();
        self.remove_at(position);
        self.interpolate();
        Some(removed)
    }

    fn remove_at(&mut self, position: usize) {
        let (start, end) = (self.start(position), self.start(position + 1));
        self.overflow.retain(|(place, _)| usize::from(*place) != position);
        for (place, _) in &mut self.overflow {
            *place -= u16::from(usize::from(*place) > position);
        }
        self.entries.drain(start..end);
        self.slots.remove(position);
        for slot in &mut self.slots[position..] {
            slot.start -= (end - start) as u16;
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
                let middle = self.entries.len() / 2;
                self.slots.partition_point(|slot| usize::from(slot.start) < middle)
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
        let (slots, bytes) = if grows { (SPARE_SLOTS, SPARE_BYTES) } else { (0, 0) };
        let mut copy = Self::default();
        copy.slots.reserve_exact(positions.len() + slots);
        copy.entries.reserve_exact(self.start(positions.end) - self.start(positions.start) + bytes);
        copy.append(self, positions);
        copy.lengthen_prefix();
        copy
    }

    /// Appends entries of another leaf, all of whose keys are above this one's.
    fn append(&mut self, other: &Self, positions: std::ops::Range<usize>) {
        let (start, end) = (other.start(positions.start), other.start(positions.end));
        let (bytes, count) = (self.entries.len(), self.len());
        let within = |place: &u16| positions.contains(&usize::from(*place));
        let overflow = other.overflow.iter().filter(|(place, _)| within(place));
        let moved = |place: u16| (usize::from(place) - positions.start + count) as u16;
        self.overflow.extend(overflow.map(|(place, value)| (moved(*place), Arc::clone(value))));
        self.slots.extend(
            other.slots[positions.clone()]
                .iter()
                .map(|slot| Slot { start: (usize::from(slot.start) - start + bytes) as u16, ..*slot }),
        );
        self.entries.extend_from_slice(&other.entries[start..end]);
    }

    /// Takes over the entries of the next leaf.
    pub(super) fn merge(&mut self, next: &Self) {
        self.append(next, 0..next.len());
        self.lengthen_prefix();
    }
}

/// Inserts a key and its value, and lets the buffer grow by little.
fn insert_bytes(buffer: &mut Vec<u8>, at: usize, key: &[u8], value: &[u8]) {
    let (end, added) = (buffer.len(), key.len() + value.len());
    if buffer.capacity() - end < added {
        buffer.reserve_exact(added + SPARE_BYTES);
    }
    if at == end {
        buffer.extend_from_slice(key);
        buffer.extend_from_slice(value);
        return;
    }
    buffer.resize(end + added, 0);
    buffer.copy_within(at..end, at + added);
    buffer[at..at + key.len()].copy_from_slice(key);
    buffer[at + key.len()..at + added].copy_from_slice(value);
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
