//! Keys of advisory locks: a class for each use, and half a key for the schema.

/// Returns the second half of the key of a schema's advisory locks.
pub(super) fn lock_key(schema: &str) -> i32 {
    crc32fast::hash(schema.as_bytes()).cast_signed()
}
