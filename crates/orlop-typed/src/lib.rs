//! Your own Rust types as kinds of an API server.
//!
//! ```
//! use orlop_typed::{Behaviour, Builder, Object};
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
//! A type says what an object holds beside its metadata; its schema comes from schemars, is published as
//! OpenAPI and is enforced. A [`Behaviour`] adds what a schema cannot say. The kind has the verbs it is
//! given, and its objects are kept in the server's store, by another API server ([`Builder::remote`]), or
//! as another kind's objects in another form ([`Builder::translation_of`]). Put it into the registry
//! (`cluster.objects.registry.change(|kinds| kinds.insert(kind))`) and every client can use it.

mod builder;
mod hooks;
mod object;
mod remote;
mod schema;

pub use builder::Builder;
pub use hooks::{Behaviour, ByItself, TypedColumn};
pub use object::{Metadata, Object};
pub use remote::Cluster;
