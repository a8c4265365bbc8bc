//! Three kinds of our own, one of each storage.
//!
//! - [`Lamp`] is stored in the server's database.
//! - [`Switch`] is a translation of a lamp, for users who may only switch it.
//! - [`Recipe`] is stored by another API server, to which requests are forwarded.

mod lamp;
mod recipe;
mod switch;

use std::sync::Arc;

use orlop_server::registry::{Kinds, remote::Remote};

pub use lamp::{Color, Lamp, LampSpec, LampStatus};
pub use recipe::{Recipe, kept as recipes_kept_here};
pub use switch::Switch;

/// Returns the built-in kinds and our own. Recipes are served if there is a remote cluster.
pub fn kinds(recipes: Option<impl Remote + 'static>) -> Kinds {
    let mut kinds = Kinds::builtin();
    let lamps = Arc::new(lamp::kind());
    kinds.insert(switch::kind(lamps.clone()));
    kinds.insert(lamps);
    if let Some(recipes) = recipes {
        kinds.insert(recipe::kind(recipes));
    }
    kinds
}
