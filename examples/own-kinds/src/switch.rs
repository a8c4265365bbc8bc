//! Switches: a translation of lamps that shows only whether they are on. A switch is not stored; it is the lamp
//! of the same name.

use std::sync::Arc;

use async_trait::async_trait;
use orlop_api::status::Status;
use orlop_server::registry::{Convert, Kind};
use orlop_typed::Builder;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A switch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Switch {
    /// Room.
    pub room: String,
    /// True if the lamp is on.
    pub on: bool,
}

/// Returns the kind: switches are read and updated, not created.
pub(crate) fn kind(lamps: Arc<Kind>) -> Kind {
    Builder::<Switch>::new("simple.example.com", "v1", "Switch")
        .plural("switches")
        .verbs(["get", "list", "patch", "update", "watch"])
        .indexed("room")
        .translation_of(lamps, Translation)
        .build()
}

/// Annotation with the fields of a lamp that a switch does not show.
const LAMP: &str = "simple.example.com/lamp";

struct Translation;

#[async_trait]
impl Convert for Translation {
    async fn served(&self, lamps: Vec<Value>) -> Result<Vec<Value>, Status> {
        Ok(lamps.into_iter().map(switch_of).collect())
    }

    async fn stored(&self, switch: Value) -> Result<Value, Status> {
        lamp_of(switch).ok_or_else(|| Status::bad_request("a switch without its lamp cannot be written"))
    }

    fn indexed_as(&self, field: &str) -> Option<String> {
        (field == "room").then(|| "spec.room".to_owned())
    }
}

fn switch_of(mut lamp: Value) -> Value {
    let (spec, status) = (lamp["spec"].take(), lamp["status"].take());
    let mut metadata = lamp["metadata"].take();
    metadata["annotations"][LAMP] = json!({"spec": spec, "status": status}).to_string().into();
    json!({
        "apiVersion": "simple.example.com/v1", "kind": "Switch", "metadata": metadata,
        "room": spec["room"], "on": spec["on"],
    })
}

fn lamp_of(mut switch: Value) -> Option<Value> {
    let metadata = switch.get_mut("metadata")?;
    let annotations = metadata.get_mut("annotations")?.as_object_mut()?;
    let hidden: Value = serde_json::from_str(annotations.remove(LAMP)?.as_str()?).ok()?;
    if annotations.is_empty() {
        metadata.as_object_mut()?.remove("annotations");
    }
    let mut lamp = json!({
        "apiVersion": "home.example.com/v1", "kind": "Lamp", "metadata": metadata, "spec": hidden["spec"],
    });
    lamp["spec"]["on"] = switch["on"].take();
    if !hidden["status"].is_null() {
        lamp["status"] = hidden["status"].clone();
    }
    Some(lamp)
}
