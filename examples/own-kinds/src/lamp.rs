//! Lamps: a typed kind with strategy, columns, index and status.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names::NameRule,
};
use orlop_server::registry::Kind;
use orlop_typed::{Builder, Object, TypedColumn, TypedStrategy};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A lamp somewhere in the house.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Lamp {
    /// Desired state.
    pub spec: LampSpec,
    /// Observed state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<LampStatus>,
}

/// Desired state of a lamp.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LampSpec {
    /// Room.
    #[schemars(length(min = 1))]
    pub room: String,
    /// True to switch it on.
    #[serde(default)]
    pub on: bool,
    /// Brightness in lumen.
    #[serde(default = "bright")]
    #[schemars(range(min = 1, max = 100_000))]
    pub lumen: i64,
    /// Color.
    #[serde(default)]
    pub color: Color,
}

fn bright() -> i64 {
    800
}

/// Color of a lamp.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Color {
    /// As by day.
    #[default]
    White,
    /// As by a fire.
    Warm,
    /// As in a laboratory.
    Red,
}

/// Observed state of a lamp.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LampStatus {
    /// Current power in watts.
    pub watts: f64,
}

pub(crate) fn kind() -> Kind {
    Builder::<Lamp>::new("home.example.com", "v1", "Lamp")
        .short_names(["lp"])
        .categories(["all"])
        .names(NameRule::Label)
        .indexed("spec.room")
        .with_status()
        .strategy(Lamps)
        .build()
}

struct Lamps;

impl TypedStrategy<Lamp> for Lamps {
    fn prepare(&self, lamp: &mut Object<Lamp>, _old: Option<&Object<Lamp>>) {
        lamp.metadata.labels.insert("home.example.com/room".into(), lamp.body.spec.room.clone());
    }

    fn validate(&self, lamp: &Object<Lamp>, old: Option<&Object<Lamp>>) -> Vec<FieldError> {
        let spec = &lamp.body.spec;
        let mut errors = Vec::new();
        if spec.color == Color::Red && spec.lumen > 400 {
            let path = FieldPath::root("spec").child("lumen");
            errors.push(FieldError::invalid(&path, spec.lumen, "red lamps have at most 400 lumen"));
        }
        if old.is_some_and(|old| old.body.spec.room != spec.room) {
            let path = FieldPath::root("spec").child("room");
            errors.push(FieldError::forbidden(&path, "lamps stay where they are"));
        }
        errors
    }

    fn warnings(&self, lamp: &Object<Lamp>) -> Vec<String> {
        let glaring = lamp.body.spec.lumen > 5000;
        glaring.then(|| "spec.lumen: do not look into this lamp".to_owned()).into_iter().collect()
    }

    fn columns(&self) -> Vec<TypedColumn<Lamp>> {
        vec![
            TypedColumn::new("Room", |lamp| lamp.body.spec.room.clone().into()),
            TypedColumn::new("On", |lamp| lamp.body.spec.on.into()),
            TypedColumn::new("Lumen", |lamp| lamp.body.spec.lumen.into()),
        ]
    }
}
