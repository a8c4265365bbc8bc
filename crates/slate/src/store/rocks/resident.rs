//! Spaces held in memory, too.
//!
//! RocksDB has every space. Those that fit a budget are held as trees as well, and answer reads as the memory
//! store does. A space that outgrows the budget is read from RocksDB from then on, until the next start.

use imbl::OrdMap;
use rocksdb::{DB, Range as KeyRange, ReadOptions};

use super::{
    super::{Space, tree::Tree},
    store_error,
};
use crate::error::Result;

/// Place that a space is read from.
#[derive(Clone, Debug)]
pub(super) enum Residence {
    Memory(Tree),
    Disk,
}

/// The spaces that are not empty, at one moment. Clones share the trees.
#[derive(Clone, Debug)]
pub(super) struct Spaces {
    spaces: OrdMap<Space, Residence>,
    /// Bytes of keys and values in memory.
    bytes: u64,
    /// Spaces that are on disk only.
    on_disk: usize,
    /// RocksDB's number of the last write.
    pub(super) sequence: u64,
}

impl Spaces {
    /// Loads spaces, the smallest first, while they fit.
    pub(super) fn load(db: &DB, bytes_max: u64) -> Result<Self> {
        let mut loaded =
            Self { spaces: OrdMap::new(), bytes: 0, on_disk: 0, sequence: db.latest_sequence_number() };
        for (size, space) in by_size(db)? {
            // The size of files, which are compressed: what is larger than the budget there is larger here.
            let left = bytes_max - loaded.bytes;
            let tree = if size <= left { load_space(db, space, left)? } else { None };
            loaded.on_disk += usize::from(tree.is_none());
            loaded.bytes += tree.as_ref().map_or(0, Tree::size);
            loaded.spaces.insert(space, tree.map_or(Residence::Disk, Residence::Memory));
        }
        Ok(loaded)
    }

    /// Returns the place of a space. Nothing: it is empty.
    pub(super) fn get(&self, space: Space) -> Option<&Residence> {
        self.spaces.get(&space)
    }

    /// Returns true if every space is in memory.
    pub(super) fn is_complete(&self) -> bool {
        self.on_disk == 0
    }

    /// Changes a space, if it is in memory or empty. Returns false if it is on disk.
    pub(super) fn change(&mut self, space: Space, change: impl FnOnce(&mut Tree)) -> bool {
        match self.spaces.entry(space).or_insert_with(|| Residence::Memory(Tree::default())) {
            Residence::Disk => false,
            Residence::Memory(tree) => {
                let before = tree.size();
                change(tree);
                self.bytes = self.bytes + tree.size() - before;
                true
            }
        }
    }

    pub(super) fn drop_space(&mut self, space: Space) {
        match self.spaces.remove(&space) {
            Some(Residence::Memory(tree)) => self.bytes -= tree.size(),
            Some(Residence::Disk) => self.on_disk -= 1,
            None => {}
        }
    }

    /// Leaves the largest spaces to the disk until the others fit.
    pub(super) fn evict(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max {
            let sizes = self.spaces.iter().filter_map(|(space, residence)| match residence {
                Residence::Memory(tree) => Some((tree.size(), *space)),
                Residence::Disk => None,
            });
            let Some((size, space)) = sizes.max() else { return };
            self.spaces.insert(space, Residence::Disk);
            self.bytes -= size;
            self.on_disk += 1;
        }
    }
}

/// Lists the spaces that are not empty with about the size of their files, the smallest first.
fn by_size(db: &DB) -> Result<Vec<(u64, Space)>> {
    let mut entries = db.raw_iterator();
    entries.seek_to_first();
    let mut spaces = Vec::new();
    while let Some(space) = entries.key().and_then(<[u8]>::first_chunk::<4>) {
        let space = Space::from_be_bytes(*space);
        let end = (space + 1).to_be_bytes();
        let size = db.get_approximate_sizes(&[KeyRange::new(&space.to_be_bytes(), &end)]);
        spaces.push((size.first().copied().unwrap_or(0), space));
        entries.seek(end);
    }
    entries.status().map_err(store_error)?;
    spaces.sort_unstable();
    Ok(spaces)
}

/// Loads a space, unless it has more bytes than this.
fn load_space(db: &DB, space: Space, bytes_max: u64) -> Result<Option<Tree>> {
    let mut options = ReadOptions::default();
    options.set_iterate_upper_bound((space + 1).to_be_bytes());
    // Blocks that are read once need no cache.
    options.fill_cache(false);
    let mut entries = db.raw_iterator_opt(options);
    entries.seek(space.to_be_bytes());
    let mut tree = Tree::default();
    while let Some((key, value)) = entries.item() {
        tree.insert(key.get(4..).unwrap_or_default(), value);
        if tree.size() > bytes_max {
            return Ok(None);
        }
        entries.next();
    }
    entries.status().map_err(store_error)?;
    Ok(Some(tree))
}
