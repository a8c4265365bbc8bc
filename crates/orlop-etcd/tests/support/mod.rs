//! What the tests share.

pub(crate) mod debian;
pub(crate) mod peer;
