//! Dynamic resource allocation: device classes, claims, slices and taints.

use serde_json::Value;

use super::{
    columns::{Heading, NAME_AND_AGE, Table, name, since},
    fill,
    read::{is_deleted, list, present, text, time},
};
use crate::{
    registry::Hooks,
    table::{Columns, age},
};

/// Claims of devices, and the templates they are made from.
pub(super) struct ResourceClaim {
    pub(super) template: bool,
}

impl Hooks for ResourceClaim {
    fn default(&self, object: &mut Value) {
        let devices = if self.template { "/spec/spec/devices" } else { "/spec/devices" };
        let Some(devices) = fill::at(object, devices) else { return };
        for request in fill::items(devices, "requests") {
            fill::child(request, "exactly").into_iter().for_each(default_count);
            fill::items(request, "firstAvailable").for_each(default_count);
        }
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(if self.template { &NAME_AND_AGE } else { &RESOURCE_CLAIMS })
    }
}

/// One device, unless it is said how many.
fn default_count(request: &mut Value) {
    fill::empty(request, "allocationMode", "ExactCount");
    if text(request, "/allocationMode") == "ExactCount" {
        fill::empty(request, "count", 1);
    }
}

static RESOURCE_CLAIMS: Table = Table {
    headings: &[Heading::NAME, Heading::text("State"), Heading::AGE],
    cells: |object, now| vec![name(object), state(object).into(), age(object, now)],
};

pub(super) static RESOURCE_SLICES: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::text("Node"),
        Heading::text("Driver"),
        Heading::text("Pool"),
        Heading::AGE,
    ],
    cells: |object, now| {
        let field = |pointer| text(object, pointer).into();
        vec![
            name(object),
            field("/spec/nodeName"),
            field("/spec/driver"),
            field("/spec/pool/name"),
            age(object, now),
        ]
    },
};

pub(super) static DEVICE_TAINT_RULES: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::text("Key"),
        Heading::text("Value"),
        Heading::text("Effect"),
        Heading::text("TimeAdded"),
        Heading::AGE,
    ],
    cells: |object, now| {
        let field = |pointer| text(object, pointer).into();
        let added =
            time(object, "/spec/taint/timeAdded").map_or_else(String::new, |then| since(Some(then), now));
        vec![
            name(object),
            field("/spec/taint/key"),
            field("/spec/taint/value"),
            field("/spec/taint/effect"),
            added.into(),
            age(object, now),
        ]
    },
};

fn state(claim: &Value) -> String {
    let deleted = is_deleted(claim);
    let allocated = present(claim, "/status/allocation").is_some();
    let states = [
        ("deleted", deleted),
        ("pending", !allocated && !deleted),
        ("allocated", allocated),
        ("reserved", allocated && !list(claim, "/status/reservedFor").is_empty()),
    ];
    states.iter().filter(|(_, holds)| *holds).map(|(state, _)| *state).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::columns::tests::row, *};

    #[test]
    fn a_claim_tells_how_far_it_is() {
        for (claim, expected) in [
            (json!({}), "pending"),
            (json!({"metadata": {"deletionTimestamp": "x"}}), "deleted"),
            (json!({"status": {"allocation": {}, "reservedFor": [{}]}}), "allocated,reserved"),
            (
                json!({"metadata": {"deletionTimestamp": "x"}, "status": {"allocation": {}}}),
                "deleted,allocated",
            ),
        ] {
            assert_eq!(row(&RESOURCE_CLAIMS, &claim)[1], expected);
        }
        let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "p"}}});
        assert_eq!(
            row(&RESOURCE_SLICES, &slice),
            json!(["s", "", "d", "p", "<unknown>"]).as_array().unwrap()[..]
        );
    }
}
