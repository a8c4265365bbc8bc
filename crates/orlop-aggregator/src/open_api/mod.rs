//! OpenAPI documents of extension API servers.
//!
//! Of a version 2 document only the paths of a group version are kept, and the definitions that they refer to. They are
//! merged into the server's own document; definitions of the same name that differ are renamed. Version 3 has one
//! document per group version, which the extension API server serves itself; one is made from version 2 for servers
//! without it.

mod convert;
mod index;
mod references;
mod spec;

pub use convert::to_v3;
pub use index::parse_index;
pub use spec::{Spec, SpecError};
