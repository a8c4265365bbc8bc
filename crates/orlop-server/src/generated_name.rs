//! Names that the server makes: what the client says they begin with, and an ending of the server's.

use std::fmt::Debug;

use orlop_api::object_meta;
use rand::Rng;
use serde_json::Value;

use crate::verbs::prepare;

/// The longest beginning of a generated name, and what it is completed with.
const BEGINNING: usize = 58;
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const ENDING: usize = 5;

/// Where the endings of generated names come from.
pub trait Endings: Debug + Send + Sync {
    /// The next one.
    fn next(&self) -> String;
}

/// Endings that nobody can foresee.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Random;

impl Endings for Random {
    fn next(&self) -> String {
        let mut random = rand::rng();
        let letter = |_| LETTERS.get(random.random_range(0..LETTERS.len())).copied().unwrap_or_default();
        (0..ENDING).map(letter).map(char::from).collect()
    }
}

/// Whether an object leaves its name to the server.
pub(crate) fn is_asked_for(object: &Value) -> bool {
    let meta = object_meta::of(object);
    !object_meta::text(meta, "generateName").is_empty() && object_meta::text(meta, "name").is_empty()
}

/// Names an object by what its name is to begin with and the next ending.
pub(crate) fn complete(object: &mut Value, endings: &dyn Endings) {
    let meta = prepare::meta(object);
    let beginning = object_meta::text(meta, "generateName").chars().take(BEGINNING);
    let name: String = beginning.chain(endings.next().chars()).collect();
    meta.insert("name".into(), name.into());
}
