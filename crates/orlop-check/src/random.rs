//! Seeded randomness, the same on every machine and in every version.

/// A small generator (splitmix64): a failing run is replayed from its seed alone.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed of several parts.
    pub fn new(parts: &[u64]) -> Self {
        let mut random = Self(0x9e37_79b9_7f4a_7c15);
        for part in parts {
            random.0 ^= *part;
            random.next();
        }
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        self.0 ^= mixed.rotate_left(17);
        mixed
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Returns a number from `low` to `high`, inclusive.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1).max(1) as u64) as i64
    }

    /// Returns true with a probability in percent.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Returns one of several choices.
    pub fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

/// Returns the seed of this run: `ORLOP_SEED`, or a new one, which is printed for replay.
pub fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let chosen = std::env::var("ORLOP_SEED").ok().and_then(|text| text.parse().ok());
    let seed = chosen.unwrap_or_else(|| {
        std::collections::hash_map::RandomState::new().build_hasher().finish() % 1_000_000_000
    });
    println!("replay with ORLOP_SEED={seed}");
    seed
}
