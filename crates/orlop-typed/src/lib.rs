//! Your own Rust types as kinds of an API server.
//!
//! ```
//! use orlop_typed::{TypedStrategy, Builder, Object};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! /// A lamp.
//! #[derive(Serialize, Deserialize, JsonSchema)]
//! struct Lamp {
//!     spec: LampSpec,
//! }
//!
//! #[derive(Serialize, Deserialize, JsonSchema)]
//! struct LampSpec {
//!     /// How bright, in lumen.
//!     #[schemars(range(min = 1))]
//!     lumen: i64,
//! }
//!
//! let lamps = Builder::<Lamp>::new("home.example.com", "v1", "Lamp").short_names(["lp"]).build();
//! assert_eq!(lamps.resource, "lamps");
//! ```
//!
//! The type is what an object has beside its metadata; its schema is derived by schemars, published as OpenAPI
//! and enforced. A [`TypedStrategy`] adds what a schema cannot express. Objects are stored in the server's
//! store, by another API server ([`Builder::remote`]), or as objects of another kind
//! ([`Builder::translation_of`]). Insert the kind into the registry
//! (`cluster.objects.registry.change(|kinds| kinds.insert(kind))`) and every client can use it.

mod builder;
mod object;
mod remote;
mod schema;
mod strategy;

pub use builder::Builder;
pub use object::{Metadata, Object};
pub use remote::Cluster;
pub use strategy::{NoStrategy, TypedColumn, TypedStrategy};
