//! Three kinds of our own, one of each sort.
//!
//! - [`Lamp`] is kept in the server's own database.
//! - [`Switch`] is a lamp seen in another form: whoever may only switch lamps sees nothing else of them.
//! - [`Recipe`] is kept by another API server, to which requests are passed on.

mod lamp;
mod recipe;
mod switch;

use std::sync::Arc;

use orlop_server::registry::{Kinds, remote::Remote};

pub use lamp::{Color, Lamp, LampSpec, LampStatus};
pub use recipe::{Recipe, kept as recipes_kept_here};
pub use switch::Switch;

/// Everything Kubernetes has, and our own. Recipes are there if there is somewhere to keep them.
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
