//! APIService: the server that serves a group version.

use base64::{Engine, engine::general_purpose::STANDARD};
use orlop_api::{
    field_error::{FieldError, FieldPath},
    names::{self, NameRule},
};
use serde_json::{Value, json};

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{condition, flag, integer, present, text},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::{RequestContext, Strategy},
    update_scope::{UpdateScope, UpdateScopes},
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    name_rule: NameRule::PathSegment,
    flags: StrategyFlags {
        allow_unconditional_update: false,
        qualified_finalizers: false,
        ..StrategyFlags::BUILTIN
    },
    update_scopes: UPDATE_SCOPES,
    columns: &COLUMNS,
    strategy: &ApiService,
    ..BuiltinKind::new("apiregistration.k8s.io", "apiservices")
};

const UPDATE_SCOPES: UpdateScopes = &[(
    "status",
    UpdateScope::preserving(
        &[
            "/spec",
            "/metadata/annotations",
            "/metadata/finalizers",
            "/metadata/labels",
            "/metadata/ownerReferences",
        ],
        &["/metadata", "/spec"],
    ),
)];

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Service"),
        ColumnDefinition::text("Available"),
        ColumnDefinition::AGE,
    ],
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

pub(crate) struct ApiService;

impl Strategy for ApiService {
    fn set_defaults(&self, object: &mut Value) {
        if let Some(service) = defaulting::object_at_mut(object, "/spec/service") {
            defaulting::set_if_absent(service, "port", 443);
        }
    }

    fn prepare_for_create(&self, object: &mut Value, context: &RequestContext<'_>) {
        object["status"] = match present(object, "/spec/service") {
            Some(_) => json!({}),
            // Nothing has to be checked.
            None => json!({"conditions": [{
                "type": "Available", "status": "True", "lastTransitionTime": context.now.to_string(),
                "reason": "Local", "message": "Local APIServices are always available",
            }]}),
        };
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (group, version) = (text(object, "/spec/group"), text(object, "/spec/version"));
        let mut errors = validate_name(object, &format!("{version}.{group}"));
        let spec = FieldPath::root("spec");
        if group.is_empty() && version != "v1" {
            let detail = "only v1 may have an empty group and it better be legacy kube";
            errors.push(FieldError::required(&spec.child("group"), detail));
        }
        if !group.is_empty() {
            errors.extend(validation::validate_dns_subdomain(group, &spec.child("group")));
        }
        errors.extend(validation::invalid_for_each(
            &spec.child("version"),
            version,
            names::dns1035_label(version),
        ));
        for (field, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
            let priority = integer(object, &format!("/spec/{field}"));
            if !(1..=most).contains(&priority) {
                let detail = format!("must be positive and less than {most}");
                errors.push(FieldError::invalid(&spec.child(field), priority, detail));
            }
        }
        errors.extend(validate_service_and_trust(object, &spec));
        errors
    }
}

/// Validates the name: `version.group`.
fn validate_name(object: &Value, expected: &str) -> Vec<FieldError> {
    let metadata = FieldPath::root("metadata");
    let given = ["generateName", "name"].map(|field| (field, text(object, &format!("/metadata/{field}"))));
    let wrong = given.into_iter().filter(|(_, name)| {
        // An invalid name is already an error.
        !name.is_empty() && *name != expected && names::path_segment(name).is_empty()
    });
    let detail = format!("must be `spec.version+\".\"+spec.group`: {expected:?}");
    wrong.map(|(field, name)| FieldError::invalid(&metadata.child(field), name, detail.clone())).collect()
}

/// Validates the service reference and how its certificate is verified.
fn validate_service_and_trust(object: &Value, spec: &FieldPath) -> Vec<FieldError> {
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
    errors.extend(validation::require_text(service, "namespace", &path));
    errors.extend(validation::require_text(service, "name", &path));
    let port = integer(service, "/port");
    let problems =
        validation::port_number_problems(port).into_iter().map(|why| format!("port is not valid: {why}"));
    errors.extend(validation::invalid_for_each(&path.child("port"), port, problems.collect()));
    if blindly && !bundle.is_empty() {
        errors.push(FieldError::invalid(&skip, true, "may not be true if caBundle is present"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::printer::tests::row;

    #[test]
    fn row_shows_service_and_availability() {
        let local = json!({"metadata": {"name": "v1."}, "status": {"conditions": [{"type": "Available", "status": "True", "reason": "Local"}]}});
        assert_eq!(row(&COLUMNS, &local), ["v1.", "Local", "True", "<unknown>"]);
        let remote = json!({"spec": {"service": {"namespace": "n", "name": "s"}}, "status": {"conditions": [{"type": "Available", "status": "False", "reason": "MissingEndpoints"}]}});
        assert_eq!(row(&COLUMNS, &remote)[1..3], ["n/s", "False (MissingEndpoints)"]);
        let mut object = json!({"spec": {"service": {}}});
        ApiService.set_defaults(&mut object);
        assert_eq!(object["spec"]["service"]["port"], 443);
    }
}
