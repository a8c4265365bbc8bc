//! Shared by the tests.

pub(crate) mod peer;
