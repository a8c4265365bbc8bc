//! Generated names: `generateName` and a random suffix.

use std::fmt::Debug;

use orlop_api::object_meta;
use rand::Rng;
use serde_json::Value;

use crate::object::metadata_mut;

/// Characters of `generateName` that are used.
const PREFIX_CHARS_MAX: usize = 58;
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_CHARS: usize = 5;

/// Source of the suffixes of generated names.
pub trait NameSuffixSource: Debug + Send + Sync {
    /// Returns the next suffix.
    fn next(&self) -> String;
}

/// Random suffixes, as in Kubernetes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RandomSuffix;

impl NameSuffixSource for RandomSuffix {
    fn next(&self) -> String {
        let mut random = rand::rng();
        let letter = |_| {
            let index = random.random_range(0..SUFFIX_ALPHABET.len());
            SUFFIX_ALPHABET.get(index).copied().unwrap_or_default()
        };
        (0..SUFFIX_CHARS).map(letter).map(char::from).collect()
    }
}

/// Returns true if an object has a `generateName` and no name.
pub(crate) fn needs_name(object: &Value) -> bool {
    let meta = object_meta::of(object);
    !object_meta::text(meta, "generateName").is_empty() && object_meta::text(meta, "name").is_empty()
}

/// Names an object by its `generateName` and the next suffix.
pub(crate) fn set_name(object: &mut Value, suffixes: &dyn NameSuffixSource) {
    let meta = metadata_mut(object);
    let prefix = object_meta::text(meta, "generateName").chars().take(PREFIX_CHARS_MAX);
    let name: String = prefix.chain(suffixes.next().chars()).collect();
    meta.insert("name".into(), name.into());
}
