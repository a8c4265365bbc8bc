//! What storage drivers say of themselves: drivers, nodes, capacities, attachments, attributes.

use orlop_api::field_error::FieldError;
use serde_json::{Value, json};

use super::{
    columns::{Heading, Table, name},
    fill,
    read::{flag, list, present, text, texts},
    storage_drivers,
};
use crate::{
    registry::Hooks,
    table::{Columns, age},
};

/// Storage drivers, which say much by saying nothing.
pub(super) struct CsiDriver;

impl Hooks for CsiDriver {
    fn default(&self, object: &mut Value) {
        let Some(spec) = fill::child(object, "spec") else { return };
        fill::absent(spec, "attachRequired", true);
        for field in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
            fill::absent(spec, field, false);
        }
        fill::absent(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if list(spec, "/volumeLifecycleModes").is_empty() {
            spec["volumeLifecycleModes"] = json!(["Persistent"]);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        storage_drivers::driver(object)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        storage_drivers::driver_update(object, old)
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&CSI_DRIVERS)
    }
}

static CSI_DRIVERS: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::boolean("AttachRequired"),
        Heading::boolean("PodInfoOnMount"),
        Heading::boolean("StorageCapacity"),
        Heading::text("TokenRequests"),
        Heading::boolean("RequiresRepublish"),
        Heading::text("Modes"),
        Heading::AGE,
    ],
    cells: |object, now| {
        let attach = present(object, "/spec/attachRequired").is_none_or(|flag| *flag == Value::Bool(true));
        let audiences = list(object, "/spec/tokenRequests").iter().map(|request| text(request, "/audience"));
        let tokens = match present(object, "/spec/tokenRequests") {
            Some(_) => audiences.collect::<Vec<_>>().join(","),
            None => "<unset>".to_owned(),
        };
        let modes = match texts(object, "/spec/volumeLifecycleModes").join(",") {
            none if none.is_empty() => "<none>".to_owned(),
            modes => modes,
        };
        vec![
            name(object),
            attach.into(),
            flag(object, "/spec/podInfoOnMount").into(),
            flag(object, "/spec/storageCapacity").into(),
            tokens.into(),
            flag(object, "/spec/requiresRepublish").into(),
            modes.into(),
            age(object, now),
        ]
    },
};

pub(super) static CSI_NODES: Table = Table {
    headings: &[Heading::NAME, Heading::integer("Drivers"), Heading::AGE],
    cells: |object, now| vec![name(object), list(object, "/spec/drivers").len().into(), age(object, now)],
};

pub(super) static VOLUME_ATTACHMENTS: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::name("Attacher"),
        Heading::text("PV"),
        Heading::text("Node"),
        Heading::boolean("Attached"),
        Heading::AGE,
    ],
    cells: |object, now| {
        let field = |pointer| text(object, pointer).into();
        vec![
            name(object),
            field("/spec/attacher"),
            field("/spec/source/persistentVolumeName"),
            field("/spec/nodeName"),
            flag(object, "/status/attached").into(),
            age(object, now),
        ]
    },
};

pub(super) static VOLUME_ATTRIBUTES_CLASSES: Table = Table {
    headings: &[Heading::NAME, Heading::text("DriverName"), Heading::AGE],
    cells: |object, now| vec![name(object), text(object, "/driverName").into(), age(object, now)],
};

#[cfg(test)]
mod tests {
    use super::{super::columns::tests::row, *};

    #[test]
    fn drivers_show_their_defaults() {
        let driver =
            json!({"metadata": {"name": "d"}, "spec": {"volumeLifecycleModes": ["Persistent", "Ephemeral"]}});
        let mut defaulted = driver.clone();
        CsiDriver.default(&mut defaulted);
        assert_eq!(defaulted["spec"]["fsGroupPolicy"], "ReadWriteOnceWithFSType");
        assert_eq!(defaulted["spec"]["volumeLifecycleModes"], driver["spec"]["volumeLifecycleModes"]);
        let expected =
            json!(["d", true, false, false, "<unset>", false, "Persistent,Ephemeral", "<unknown>"]);
        assert_eq!(row(&CSI_DRIVERS, &driver), expected.as_array().unwrap()[..]);
        let attachment = json!({"metadata": {"name": "a"}, "spec": {"attacher": "x", "nodeName": "n"}, "status": {"attached": true}});
        let expected = json!(["a", "x", "", "n", true, "<unknown>"]);
        assert_eq!(row(&VOLUME_ATTACHMENTS, &attachment), expected.as_array().unwrap()[..]);
    }
}
