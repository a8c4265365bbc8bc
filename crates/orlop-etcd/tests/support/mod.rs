//! What the tests share.

pub mod debian;
pub mod peer;
