//! Recipes: kept by another API server, offered here.

use orlop_server::registry::{Kind, remote::Remote};
use orlop_typed::Builder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What to cook.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Recipe {
    /// What it takes.
    pub ingredients: Vec<String>,
}

/// Recipes may be read here; they are written where they are kept.
pub(crate) fn kind(kept: impl Remote + 'static) -> Kind {
    Builder::<Recipe>::new("kitchen.example.com", "v1", "Recipe")
        .verbs(["get", "list", "watch"])
        .remote(kept)
        .build()
}

/// The same kind, where it is kept.
pub fn kept() -> Kind {
    Builder::<Recipe>::new("kitchen.example.com", "v1", "Recipe").build()
}
