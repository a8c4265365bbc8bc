//! CSIDriver: capabilities of a CSI driver.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names,
    object_meta::IMMUTABLE,
};
use serde_json::{Value, json};

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{flag, list, mark_repeated, present, text, texts},
    defaulting,
    equality::semantically_equal,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags {
        allow_unconditional_update: false,
        returns_deleted_object: true,
        ..StrategyFlags::BUILTIN
    },
    columns: &COLUMNS,
    strategy: &CsiDriver,
    ..BuiltinKind::new("storage.k8s.io", "csidrivers")
};

const DRIVER_NAME_MAX: usize = 63;

const TOKEN_SECONDS_MIN: i64 = 600;

/// Validates a driver name: a DNS subdomain, in any case.
pub(crate) fn validate_driver_name(name: &str, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if name.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    if name.len() > DRIVER_NAME_MAX {
        errors.push(FieldError::too_long(path, DRIVER_NAME_MAX));
    }
    let problems = names::dns1123_subdomain(&name.to_lowercase());
    errors.extend(validation::invalid_for_each(path, name, problems));
    errors
}

/// Validates a driver.
pub(crate) fn validate_driver(object: &Value) -> Vec<FieldError> {
    let spec = FieldPath::root("spec");
    let mut errors = Vec::new();
    let given = object.get("spec").unwrap_or(&Value::Null);
    errors.extend(validation::validate_supported(
        given,
        "fsGroupPolicy",
        &spec,
        &["File", "None", "ReadWriteOnceWithFSType"],
    ));
    let requests = list(object, "/spec/tokenRequests");
    let repeated = mark_repeated(requests, |request| text(request, "/audience"));
    for ((index, request), repeated) in requests.iter().enumerate().zip(repeated) {
        let path = spec.child("tokenRequests").index(index);
        if repeated {
            errors.push(FieldError::duplicate(&path.child("audience"), text(request, "/audience")));
        }
        let seconds = present(request, "/expirationSeconds").and_then(Value::as_i64);
        if let Some(seconds) = seconds.filter(|seconds| *seconds < TOKEN_SECONDS_MIN) {
            let detail = "may not specify a duration less than 10 minutes";
            errors.push(FieldError::invalid(&path.child("expirationSeconds"), seconds, detail));
        }
    }
    let modes = ["Persistent", "Ephemeral"];
    for mode in texts(object, "/spec/volumeLifecycleModes") {
        if !modes.contains(&mode) {
            errors.push(FieldError::not_supported(&spec.child("volumeLifecycleModes"), mode, &modes));
        }
    }
    errors
}

/// Validates that immutable fields did not change.
pub(crate) fn validate_driver_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let spec = FieldPath::root("spec");
    // Kubernetes misspells the first field.
    let kept = [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")];
    let changed = kept.into_iter().filter_map(|(field, reported_as)| {
        let of = |object: &Value| object.pointer(&format!("/spec/{field}")).cloned().unwrap_or_default();
        let (new, old) = (of(object), of(old));
        (!semantically_equal(&new, &old))
            .then(|| FieldError::invalid(&spec.child(reported_as), new, IMMUTABLE))
    });
    changed.collect()
}

pub(crate) struct CsiDriver;

impl Strategy for CsiDriver {
    fn set_defaults(&self, object: &mut Value) {
        let Some(spec) = defaulting::object_mut(object, "spec") else { return };
        defaulting::set_if_absent(spec, "attachRequired", true);
        for field in [
            "podInfoOnMount",
            "storageCapacity",
            "requiresRepublish",
            "seLinuxMount",
            "preventPodSchedulingIfMissing",
        ] {
            defaulting::set_if_absent(spec, field, false);
        }
        defaulting::set_if_absent(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if list(spec, "/volumeLifecycleModes").is_empty() {
            spec["volumeLifecycleModes"] = json!(["Persistent"]);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate_driver(object)
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validate_driver_update(object, old)
    }
}

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::boolean("AttachRequired"),
        ColumnDefinition::boolean("PodInfoOnMount"),
        ColumnDefinition::boolean("StorageCapacity"),
        ColumnDefinition::text("TokenRequests"),
        ColumnDefinition::boolean("RequiresRepublish"),
        ColumnDefinition::text("Modes"),
        ColumnDefinition::AGE,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printer::tests::row;

    #[test]
    fn driver_defaults_are_set_and_printed() {
        let driver =
            json!({"metadata": {"name": "d"}, "spec": {"volumeLifecycleModes": ["Persistent", "Ephemeral"]}});
        let mut defaulted = driver.clone();
        CsiDriver.set_defaults(&mut defaulted);
        assert_eq!(defaulted["spec"]["fsGroupPolicy"], "ReadWriteOnceWithFSType");
        assert_eq!(defaulted["spec"]["volumeLifecycleModes"], driver["spec"]["volumeLifecycleModes"]);
        let expected =
            json!(["d", true, false, false, "<unset>", false, "Persistent,Ephemeral", "<unknown>"]);
        assert_eq!(row(&COLUMNS, &driver), expected.as_array().unwrap()[..]);
    }
}
