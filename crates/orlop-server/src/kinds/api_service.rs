//! APIService: which server answers for a version of a group.

use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
};
use serde_json::Value;

use super::{
    check,
    columns::{Heading, Table, name},
    fill,
    read::{condition, flag, integer, present, text},
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

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (group, version) = (text(object, "/spec/group"), text(object, "/spec/version"));
        let mut errors = named(object, &format!("{version}.{group}"));
        let spec = FieldPath::root("spec");
        if group.is_empty() && version != "v1" {
            let detail = "only v1 may have an empty group and it better be legacy kube";
            errors.push(FieldError::required(&spec.child("group"), detail));
        }
        if !group.is_empty() {
            errors.extend(check::dns_subdomain(group, &spec.child("group")));
        }
        errors.extend(check::each(&spec.child("version"), version, names::dns1035_label(version)));
        for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
            let priority = integer(object, &format!("/spec/{field}"));
            if !(1..=most).contains(&priority) {
                let detail = format!("must be positive and less than {most}");
                errors.push(FieldError::invalid(&spec.child(field), priority, detail));
            }
        }
        errors.extend(trust(object, &spec));
        errors
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&API_SERVICES)
    }
}

/// It is named for what it answers.
fn named(object: &Value, expected: &str) -> Vec<FieldError> {
    let metadata = FieldPath::root("metadata");
    let given = ["generateName", "name"].map(|field| (field, text(object, &format!("/metadata/{field}"))));
    let wrong = given.into_iter().filter(|(_, name)| {
        // What no name can be has been refused already.
        !name.is_empty() && *name != expected && names::path_segment(name).is_empty()
    });
    let detail = format!("must be `spec.version+\".\"+spec.group`: {expected:?}");
    wrong.map(|(field, name)| FieldError::invalid(&metadata.child(field), name, detail.clone())).collect()
}

/// Who answers, and why that is believed.
fn trust(object: &Value, spec: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let bundle = STANDARD.decode(text(object, "/spec/caBundle")).unwrap_or_default();
    let blindly = flag(object, "/spec/insecureSkipTLSVerify");
    let skip = spec.child("insecureSkipTLSVerify");
    let Some(service) = present(object, "/spec/service") else {
        if !bundle.is_empty() {
            let (size, detail) =
                (format!("{} bytes", bundle.len()), "local APIServices may not have a caBundle");
            errors.push(FieldError::invalid(&spec.child("caBundle"), size, detail));
        }
        if blindly {
            let detail = "local APIServices may not have insecureSkipTLSVerify";
            errors.push(FieldError::invalid(&skip, true, detail));
        }
        return errors;
    };
    let path = spec.child("service");
    errors.extend(check::required(service, "namespace", &path));
    errors.extend(check::required(service, "name", &path));
    let port = integer(service, "/port");
    let problems = check::port_number(port).into_iter().map(|why| format!("port is not valid: {why}"));
    errors.extend(check::each(&path.child("port"), port, problems.collect()));
    if blindly && !bundle.is_empty() {
        errors.push(FieldError::invalid(&skip, true, "may not be true if caBundle is present"));
    }
    errors
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
