//! APIService: which server answers for a version of a group.

use serde_json::Value;

use super::{
    columns::{Heading, Table, name},
    fill,
    read::{condition, present, text},
};
use crate::{
    registry::Hooks,
    table::{Columns, age},
};

static API_SERVICES: Table = Table {
    headings: &[Heading::NAME, Heading::text("Service"), Heading::text("Available"), Heading::AGE],
    cells: |object, now| {
        let service = present(object, "/spec/service").map_or_else(
            || "Local".to_owned(),
            |service| format!("{}/{}", text(service, "/namespace"), text(service, "/name")),
        );
        let available = condition(object, "Available").map_or_else(
            || "Unknown".to_owned(),
            |condition| match (text(condition, "/status"), text(condition, "/reason")) {
                (status @ "True", _) | (status, "") => status.to_owned(),
                (status, reason) => format!("{status} ({reason})"),
            },
        );
        vec![name(object), service.into(), available.into(), age(object, now)]
    },
};

pub(super) struct ApiService;

impl Hooks for ApiService {
    fn default(&self, object: &mut Value) {
        if let Some(service) = fill::at(object, "/spec/service") {
            fill::absent(service, "port", 443);
        }
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&API_SERVICES)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::columns::tests::row, *};

    #[test]
    fn an_api_service_is_shown_with_who_answers() {
        let local = json!({"metadata": {"name": "v1."}, "status": {"conditions": [{"type": "Available", "status": "True", "reason": "Local"}]}});
        assert_eq!(row(&API_SERVICES, &local), ["v1.", "Local", "True", "<unknown>"]);
        let remote = json!({"spec": {"service": {"namespace": "n", "name": "s"}}, "status": {"conditions": [{"type": "Available", "status": "False", "reason": "MissingEndpoints"}]}});
        assert_eq!(row(&API_SERVICES, &remote)[1..3], ["n/s", "False (MissingEndpoints)"]);
        let mut object = json!({"spec": {"service": {}}});
        ApiService.default(&mut object);
        assert_eq!(object["spec"]["service"]["port"], 443);
    }
}
