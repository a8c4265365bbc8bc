//! KMS v2 plugins: envelope encryption with a data encryption key that a plugin encrypts.
//!
//! The data encryption key is a random seed. Each value gets a key of its own, derived from the seed and random bytes
//! that are stored with it. The plugin encrypts the seed once; the encrypted seed is stored with each value. A background
//! task asks the plugin for its status: a new key id means a new seed, and values under the old one are stale. Values are
//! written with the last seed for up to three minutes of a failing plugin, and can be read for as long as their seed is in
//! memory.

mod client;
mod envelope;
mod plugin;

pub use plugin::KmsTiming;
pub(crate) use plugin::{Lookup, NeededKey, Plugin};
