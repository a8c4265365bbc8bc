//! Tables of kinds that have nothing else of their own.

use super::{
    columns::{Heading, Table, name},
    read::{list, present, text, texts},
};
use crate::table::age;

pub(super) static COMPONENT_STATUSES: Table = Table {
    headings: &[Heading::NAME, Heading::text("Status"), Heading::text("Message"), Heading::text("Error")],
    cells: |object, _| {
        let healthy =
            list(object, "/conditions").iter().find(|condition| text(condition, "/type") == "Healthy");
        let status = match healthy.map(|condition| text(condition, "/status")) {
            Some("True") => "Healthy",
            Some(_) => "Unhealthy",
            None => "Unknown",
        };
        let told = |field| healthy.map_or("", |condition| text(condition, field)).into();
        vec![name(object), status.into(), told("/message"), told("/error")]
    },
};

pub(super) static IP_ADDRESSES: Table = Table {
    headings: &[Heading::NAME, Heading::text("ParentRef")],
    cells: |object, _| {
        let parent = present(object, "/spec/parentRef").map_or_else(
            || "<none>".to_owned(),
            |parent| {
                let (group, resource) = (text(parent, "/group"), text(parent, "/resource"));
                let kind = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
                let parts = [
                    kind.to_lowercase(),
                    text(parent, "/namespace").to_owned(),
                    text(parent, "/name").to_owned(),
                ];
                parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
            },
        );
        vec![name(object), parent.into()]
    },
};

pub(super) static SERVICE_CIDRS: Table = Table {
    headings: &[Heading::NAME, Heading::text("CIDRs"), Heading::AGE],
    cells: |object, now| vec![name(object), texts(object, "/spec/cidrs").join(",").into(), age(object, now)],
};

pub(super) static STORAGE_VERSION_MIGRATIONS: Table = Table {
    headings: &[Heading::NAME, Heading::text("Resource"), Heading::text("Status")],
    cells: |object, _| {
        let (group, resource) =
            (text(object, "/spec/resource/group"), text(object, "/spec/resource/resource"));
        let migrated = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
        let holds = list(object, "/status/conditions")
            .iter()
            .filter(|condition| text(condition, "/status") == "True");
        let mut kinds = holds.map(|condition| text(condition, "/type"));
        let status = kinds.rfind(|kind| matches!(*kind, "Running" | "Failed" | "Succeeded"));
        vec![name(object), migrated.into(), status.unwrap_or("Unknown").into()]
    },
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::columns::tests::row, *};

    #[test]
    fn rows_say_where_and_how_things_are() {
        let healthy = json!({"metadata": {"name": "etcd-0"}, "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}]});
        assert_eq!(row(&COMPONENT_STATUSES, &healthy), ["etcd-0", "Healthy", "ok", ""]);
        let address = json!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": {"resource": "services", "namespace": "default", "name": "kubernetes"}}});
        assert_eq!(row(&IP_ADDRESSES, &address), ["10.0.0.1", "services/default/kubernetes"]);
        let migration = json!({"spec": {"resource": {"group": "apps", "resource": "deployments"}}, "status": {"conditions": [{"type": "Succeeded", "status": "True"}]}});
        assert_eq!(row(&STORAGE_VERSION_MIGRATIONS, &migration)[1..], ["deployments.apps", "Succeeded"]);
        assert_eq!(row(&SERVICE_CIDRS, &json!({"spec": {"cidrs": ["a", "b"]}}))[1], "a,b");
    }
}
