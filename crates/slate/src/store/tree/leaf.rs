//! Leaves: entries in one buffer, in order.

use std::{cmp::Ordering, sync::Arc};

/// Bytes of entries after which a leaf splits.
const LEAF_BYTES: usize = 4096;
/// Longest value kept among the entries. A longer one is kept apart, so that inserting beside it moves little.
const INLINE_VALUE_MAX: usize = 1024;
/// Spare bytes of a buffer that had to grow.
const SPARE_BYTES: usize = 256;
/// Spare offsets of a list that had to grow.
const SPARE_OFFSETS: usize = 8;

/// A leaf. An entry is its key's length, the key, a tag and, unless it is kept apart, the value. The tag is
/// twice the value's length, or twice its place in `apart` and one.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaf {
    /// Beginning of each entry in `bytes`.
    offsets: Vec<u32>,
    bytes: Vec<u8>,
    /// Long values. A free place is empty.
    apart: Vec<Option<Arc<[u8]>>>,
    /// Position after the last insertion, to recognise ascending ones.
    next: u32,
}

impl Leaf {
    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Returns true if another leaf's entries fit in here with room to spare.
    pub(super) fn has_room_for(&self, other: &Self) -> bool {
        self.bytes.len() + other.bytes.len() <= LEAF_BYTES / 4 * 3
    }

    /// Returns true if the leaf should be merged with a neighbour.
    pub(super) fn is_small(&self) -> bool {
        self.bytes.len() < LEAF_BYTES / 4
    }

    fn is_full(&self) -> bool {
        self.bytes.len() > LEAF_BYTES && self.len() > 1
    }

    pub(super) fn key(&self, position: usize) -> &[u8] {
        let (length, from) = read(&self.bytes, self.offsets[position] as usize);
        &self.bytes[from..from + length]
    }

    pub(super) fn entry(&self, position: usize) -> (&[u8], &[u8]) {
        let (length, from) = read(&self.bytes, self.offsets[position] as usize);
        let to = from + length;
        let (tag, value) = read(&self.bytes, to);
        let value = if tag & 1 == 0 {
            &self.bytes[value..value + tag / 2]
        } else {
            self.apart[tag / 2].as_deref().unwrap_or_default()
        };
        (&self.bytes[from..to], value)
    }

    pub(super) fn last_key(&self) -> &[u8] {
        self.key(self.len() - 1)
    }

    /// Finds a key: its position, or the one where it would be inserted.
    pub(super) fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.key(middle).cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Returns the position of the first key that is not below this one.
    pub(super) fn lower_bound(&self, key: &[u8]) -> usize {
        self.search(key).unwrap_or_else(|position| position)
    }

    /// Sets a key. Returns the length of the value that it had, and the right half if the leaf had to split.
    pub(super) fn insert(&mut self, key: &[u8], value: &[u8]) -> (Option<usize>, Option<Self>) {
        let (position, replaced) = match self.search(key) {
            Ok(position) => {
                let replaced = self.entry(position).1.len();
                self.remove_at(position);
                (position, Some(replaced))
            }
            Err(position) => (position, None),
        };
        self.insert_at(position, key, value);
        let ascending = replaced.is_none() && self.next as usize == position;
        self.next = position as u32 + 1;
        let right = self.is_full().then(|| self.split(if ascending { position + 1 } else { 0 }));
        (replaced, right)
    }

    fn insert_at(&mut self, position: usize, key: &[u8], value: &[u8]) {
        let tag = if value.len() <= INLINE_VALUE_MAX { value.len() * 2 } else { self.keep_apart(value) };
        let inline = if tag & 1 == 0 { value } else { &[] };
        let added = length_of(key.len()) + key.len() + length_of(tag) + inline.len();
        let from = self.offset(position);
        open_gap(&mut self.bytes, from, added);
        let at = write(&mut self.bytes, from, key.len());
        self.bytes[at..at + key.len()].copy_from_slice(key);
        let at = write(&mut self.bytes, at + key.len(), tag);
        self.bytes[at..at + inline.len()].copy_from_slice(inline);
        if self.offsets.len() == self.offsets.capacity() {
            self.offsets.reserve_exact(SPARE_OFFSETS);
        }
        self.offsets.insert(position, from as u32);
        for offset in &mut self.offsets[position + 1..] {
            *offset += added as u32;
        }
    }

    fn keep_apart(&mut self, value: &[u8]) -> usize {
        let value = Some(Arc::from(value));
        let place = match self.apart.iter().position(Option::is_none) {
            Some(free) => {
                self.apart[free] = value;
                free
            }
            None => {
                self.apart.push(value);
                self.apart.len() - 1
            }
        };
        place * 2 + 1
    }

    /// Removes a key. Returns the length of its value.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<usize> {
        let position = self.search(key).ok()?;
        let removed = self.entry(position).1.len();
        self.remove_at(position);
        Some(removed)
    }

    fn remove_at(&mut self, position: usize) {
        let (from, to) = (self.offset(position), self.offset(position + 1));
        let (length, key) = read(&self.bytes, from);
        let (tag, _) = read(&self.bytes, key + length);
        if tag & 1 == 1 {
            self.apart[tag / 2] = None;
        }
        self.bytes.drain(from..to);
        self.offsets.remove(position);
        for offset in &mut self.offsets[position..] {
            *offset -= (to - from) as u32;
        }
    }

    /// Returns where an entry begins; the entry after the last begins at the end.
    fn offset(&self, position: usize) -> usize {
        self.offsets.get(position).map_or(self.bytes.len(), |offset| *offset as usize)
    }

    /// Splits and returns the right half. `at` is where to split, or 0 for the middle. Ascending insertions
    /// split behind the last one, which leaves full leaves behind.
    fn split(&mut self, at: usize) -> Self {
        let middle = self.bytes.len() / 2;
        let balanced = || self.offsets.partition_point(|offset| (*offset as usize) < middle);
        let at = match at {
            0 => balanced(),
            at if at == self.len() => at - 1,
            at => at,
        };
        let at = at.clamp(1, self.len() - 1);
        let right = self.copy(at..self.len());
        *self = self.copy(0..at);
        // The next of an ascending run belongs to whichever half ends with the last insertion.
        self.next = self.len() as u32;
        right
    }

    fn copy(&self, positions: std::ops::Range<usize>) -> Self {
        let mut copy = Self::default();
        let bytes = self.offset(positions.end) - self.offset(positions.start);
        copy.bytes.reserve_exact(bytes + SPARE_BYTES);
        copy.offsets.reserve_exact(positions.len() + SPARE_OFFSETS);
        copy.append(self, positions);
        copy
    }

    /// Appends entries of another leaf, all of whose keys are above this one's.
    fn append(&mut self, other: &Self, positions: std::ops::Range<usize>) {
        if other.apart.iter().all(Option::is_none) {
            let (from, to) = (other.offset(positions.start), other.offset(positions.end));
            let shift = self.bytes.len() as u32;
            self.offsets.extend(other.offsets[positions].iter().map(|at| at - from as u32 + shift));
            self.bytes.extend_from_slice(&other.bytes[from..to]);
            return;
        }
        for position in positions {
            let (key, value) = other.entry(position);
            self.insert_at(self.len(), key, value);
        }
    }

    /// Takes over the entries of the next leaf.
    pub(super) fn merge(&mut self, next: &Self) {
        self.append(next, 0..next.len());
    }
}

/// Reads a number of at most 28 bits, seven to a byte, and returns it with the position after it.
fn read(bytes: &[u8], at: usize) -> (usize, usize) {
    let first = usize::from(bytes[at]);
    if first < 0x80 {
        return (first, at + 1);
    }
    let (mut number, mut at, mut shift) = (first & 0x7f, at + 1, 7);
    loop {
        let byte = usize::from(bytes[at]);
        at += 1;
        number |= (byte & 0x7f) << shift;
        if byte < 0x80 {
            return (number, at);
        }
        shift += 7;
    }
}

fn write(bytes: &mut [u8], mut at: usize, mut number: usize) -> usize {
    while number >= 0x80 {
        bytes[at] = number as u8 | 0x80;
        number >>= 7;
        at += 1;
    }
    bytes[at] = number as u8;
    at + 1
}

fn length_of(number: usize) -> usize {
    match number {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

/// Moves what follows `at` by `length` bytes.
fn open_gap(bytes: &mut Vec<u8>, at: usize, length: usize) {
    let end = bytes.len();
    if bytes.capacity() - end < length {
        bytes.reserve_exact(length + SPARE_BYTES);
    }
    bytes.resize(end + length, 0);
    bytes.copy_within(at..end, at + length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascending_insertions_leave_full_leaves() {
        let (mut leaf, mut filled) = (Leaf::default(), Vec::new());
        for n in 0..2000_u32 {
            if let (_, Some(right)) = leaf.insert(&n.to_be_bytes(), &[0; 100]) {
                filled.push(std::mem::replace(&mut leaf, right).bytes.len());
            }
        }
        assert!(filled.len() > 40 && filled.iter().all(|bytes| *bytes > LEAF_BYTES * 9 / 10), "{filled:?}");
    }

    #[test]
    fn numbers_of_every_length_round_trip() {
        for number in [0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152, 40_000_000] {
            let mut bytes = vec![0; length_of(number)];
            assert_eq!(write(&mut bytes, 0, number), bytes.len());
            assert_eq!(read(&bytes, 0), (number, bytes.len()));
        }
    }
}
