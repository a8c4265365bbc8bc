//! Recipes: stored by another API server, served here.

use orlop_server::registry::{Kind, remote::Remote};
use orlop_typed::Builder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A recipe.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Recipe {
    /// Ingredients.
    pub ingredients: Vec<String>,
}

/// Returns the read-only kind; recipes are written on the server that stores them.
pub(crate) fn kind(kept: impl Remote + 'static) -> Kind {
    Builder::<Recipe>::new("kitchen.example.com", "v1", "Recipe")
        .verbs(["get", "list", "watch"])
        .remote(kept)
        .build()
}

/// Returns the kind on the server that stores it.
pub fn kept() -> Kind {
    Builder::<Recipe>::new("kitchen.example.com", "v1", "Recipe").build()
}
