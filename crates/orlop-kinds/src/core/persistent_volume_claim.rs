//! PersistentVolumeClaim: a request for storage.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels,
};
use serde_json::{Value, json};

use super::persistent_volume::{
    format_access_modes, phase, storage_class_name, validate_access_modes, validate_class_and_mode,
};
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{map, present, text, text_or, texts},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, name},
    quantities,
    strategy::{RequestContext, Strategy},
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &PersistentVolumeClaim,
    ..BuiltinKind::new("", "persistentvolumeclaims")
};

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Status"),
        ColumnDefinition::text("Volume"),
        ColumnDefinition::text("Capacity"),
        ColumnDefinition::text("Access Modes"),
        ColumnDefinition::text("StorageClass"),
        ColumnDefinition::text("VolumeAttributesClass"),
        ColumnDefinition::AGE,
        ColumnDefinition::wide("VolumeMode"),
    ],
    cells: |object, now| {
        let volume = text(object, "/spec/volumeName");
        let (capacity, modes) = match volume {
            "" => (String::new(), String::new()),
            _ => (
                quantities::canonical_text(object.pointer("/status/capacity/storage")),
                format_access_modes(&texts(object, "/status/accessModes")),
            ),
        };
        vec![
            name(object),
            phase(object).into(),
            volume.into(),
            capacity.into(),
            modes.into(),
            storage_class_name(object).into(),
            text_or(object, "/spec/volumeAttributesClassName", "<unset>").into(),
            age(object, now),
            text_or(object, "/spec/volumeMode", "<unset>").into(),
        ]
    },
};

pub(crate) struct PersistentVolumeClaim;

const STORAGE_CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// Returns warnings of fractions of a byte, and of the deprecated annotation of the storage class.
fn warnings(object: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    if map(object, "/metadata/annotations").contains_key(STORAGE_CLASS_ANNOTATION) {
        warnings.push(format!(
            "metadata.annotations[{STORAGE_CLASS_ANNOTATION}]: deprecated since v1.8; use \"storageClassName\" attribute \
             instead"
        ));
    }
    warnings.extend(spec_warnings(object.get("spec").unwrap_or(&Value::Null), &FieldPath::root("spec")));
    warnings
}

/// Returns warnings of fractions of a byte in the specification of a claim.
pub(crate) fn spec_warnings(spec: &Value, path: &FieldPath) -> Vec<String> {
    let mut warnings = Vec::new();
    for field in ["requests", "limits"] {
        let given = spec.pointer(&format!("/resources/{field}/storage"));
        let amount = given.and_then(quantities::parse);
        if amount.is_some_and(|amount| amount.milli_units() % 1000 != 0) {
            warnings.push(format!(
                "{}: fractional byte value \"{}\" is invalid, must be an integer",
                path.child("resources").child(field).key("storage"),
                quantities::canonical_text(given)
            ));
        }
    }
    warnings
}

impl Strategy for PersistentVolumeClaim {
    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        warnings(object)
    }

    fn warnings_on_update(&self, object: &Value, _old: &Value) -> Vec<String> {
        warnings(object)
    }

    fn set_defaults(&self, object: &mut Value) {
        if let Some(spec) = defaulting::object_mut(object, "spec") {
            set_spec_defaults(spec);
        }
    }

    fn prepare_for_create(&self, object: &mut Value, _context: &RequestContext<'_>) {
        object["status"] = json!({"phase": "Pending"});
        if let Some(spec) = defaulting::object_mut(object, "spec") {
            sync_data_sources(spec);
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        validate_spec(object.get("spec").unwrap_or(&Value::Null), &FieldPath::root("spec"))
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        validate_spec_update(object, old)
    }
}

/// Sets the defaults of a claim or of a claim template.
pub(crate) fn set_spec_defaults(spec: &mut Value) {
    defaulting::set_if_absent(spec, "volumeMode", "Filesystem");
}

/// Copies dataSource and dataSourceRef to each other, where the source is in the claim's namespace.
fn sync_data_sources(spec: &mut Value) {
    let (source, reference) = (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned());
    match (source, reference) {
        (Some(source), None) => spec["dataSourceRef"] = source,
        (None, Some(reference)) if text(&reference, "/namespace").is_empty() => {
            spec["dataSource"] = reference;
        }
        _ => {}
    }
}

pub(crate) fn validate_spec(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors = validate_access_modes(spec, path, "at least 1 access mode is required");
    if let Some(selector) = present(spec, "/selector") {
        errors.extend(labels::validate_label_selector(selector, &path.child("selector")));
    }
    let size = path.child("resources").key("storage");
    match present(spec, "/resources/requests/storage") {
        None => errors.push(FieldError::required(&size, "")),
        Some(amount) => errors.extend(quantities::validate_positive(amount, &size)),
    }
    errors.extend(validate_class_and_mode(spec, path));
    for field in ["dataSource", "dataSourceRef"] {
        if let Some(source) = present(spec, &format!("/{field}")) {
            errors.extend(validate_data_source(source, &path.child(field)));
        }
    }
    if let (Some(source), Some(reference)) = (present(spec, "/dataSource"), present(spec, "/dataSourceRef")) {
        let same = ["apiGroup", "kind", "name"].iter().all(|field| source.get(field) == reference.get(field));
        let detail = match text(reference, "/namespace") {
            "" => (!same).then_some("must match dataSourceRef"),
            _ => Some("may not be specified when dataSourceRef.namespace is specified"),
        };
        // Kubernetes gives the path of the field as its value, which prints as an empty object.
        errors.extend(detail.map(|detail| FieldError::invalid(path, json!({}), detail)));
    }
    errors
}

fn validate_data_source(source: &Value, path: &FieldPath) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = validation::require_text(source, "name", path).into_iter().collect();
    errors.extend(validation::require_text(source, "kind", path));
    match text(source, "/apiGroup") {
        "" if text(source, "/kind") != "PersistentVolumeClaim" => {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.push(FieldError::invalid(path, text(source, "/kind"), detail));
        }
        "" => {}
        group => errors.extend(validation::validate_dns_subdomain(group, &path.child("apiGroup"))),
    }
    errors
}

fn validate_spec_update(object: &Value, old: &Value) -> Vec<FieldError> {
    const IMMUTABLE: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
    const SIZE: &str = "/resources/requests/storage";
    let path = FieldPath::root("spec");
    let (mut new_spec, mut old_spec) = (object["spec"].clone(), old["spec"].clone());
    let (new_size, old_size) = (new_spec.pointer(SIZE).cloned(), old_spec.pointer(SIZE).cloned());
    let volume_mode = validation::validate_immutable(&new_spec, &old_spec, "volumeMode", &FieldPath::nil());
    // volumeName and storageClassName may be set once; a bound claim may grow and change its attributes class.
    let mut may = vec![];
    if text(&old_spec, "/volumeName").is_empty() {
        may.push("volumeName");
    }
    if present(&old_spec, "/storageClassName").is_none() {
        may.push("storageClassName");
    }
    if text(object, "/status/phase") == "Bound" {
        may.push("volumeAttributesClassName");
        for spec in [&mut new_spec, &mut old_spec] {
            if let Some(requests) = defaulting::object_at_mut(spec, "/resources/requests") {
                defaulting::remove_field(requests, "storage");
            }
        }
    }
    for field in may {
        defaulting::remove_field(&mut new_spec, field);
        defaulting::remove_field(&mut old_spec, field);
    }
    let mut errors = Vec::new();
    if new_spec != old_spec {
        errors.push(FieldError::forbidden(&path, IMMUTABLE));
    }
    let amount = |size: Option<&Value>| size.and_then(quantities::parse);
    let (new_size, old_size) = (amount(new_size.as_ref()), amount(old_size.as_ref()));
    if new_size < old_size && new_size <= amount(old.pointer("/status/capacity/storage")) {
        let path = path.child("resources").child("requests").child("storage");
        errors.push(FieldError::forbidden(&path, "field can not be less than status.capacity"));
    }
    errors.extend(volume_mode);
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    fn claim() -> Value {
        json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "2Gi"}}}})
    }

    #[test]
    fn claim_requires_access_modes_and_storage() {
        assert!(messages(PersistentVolumeClaim.validate(&claim())).is_empty());
        let mut object =
            json!({"spec": {"resources": {"requests": {"storage": "-1"}}, "dataSource": {"kind": "X"}}});
        PersistentVolumeClaim.set_defaults(&mut object);
        assert_eq!(object["spec"]["volumeMode"], "Filesystem");
        assert_eq!(
            messages(PersistentVolumeClaim.validate(&object)),
            [
                "spec.accessModes: Required value: at least 1 access mode is required",
                r#"spec.resources[storage]: Invalid value: "-1": must be greater than zero"#,
                "spec.dataSource.name: Required value",
                r#"spec.dataSource: Invalid value: "X": must be 'PersistentVolumeClaim' when referencing the default apiGroup"#,
            ]
        );
        assert_eq!(
            messages(PersistentVolumeClaim.validate(&json!({"spec": {"accessModes": ["ReadWriteOnce"]}}))),
            ["spec.resources[storage]: Required value"]
        );
    }

    #[test]
    fn only_a_bound_claim_may_grow() {
        let with = |size: &str, phase: &str| {
            let mut object = claim();
            object["spec"]["resources"]["requests"]["storage"] = size.into();
            object["status"] = json!({"phase": phase, "capacity": {"storage": "2Gi"}});
            object
        };
        let immutable = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";
        assert_eq!(
            messages(validate_spec_update(&with("3Gi", "Pending"), &with("2Gi", "Pending"))),
            [immutable]
        );
        assert!(validate_spec_update(&with("3Gi", "Bound"), &with("2Gi", "Bound")).is_empty());
        assert_eq!(
            messages(validate_spec_update(&with("1Gi", "Bound"), &with("2Gi", "Bound"))),
            ["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"]
        );
        let mut bound = claim();
        bound["spec"]["volumeName"] = "v".into();
        assert!(validate_spec_update(&bound, &claim()).is_empty());
        assert_eq!(messages(validate_spec_update(&claim(), &bound)), [immutable]);
    }

    #[test]
    fn row_shows_the_bound_volume() {
        assert_eq!(row(&COLUMNS, &claim()), ["c", "", "", "", "", "", "<unset>", "<unknown>", "Filesystem"]);
        let mut object = claim();
        object["spec"]["volumeName"] = "v".into();
        object["status"] =
            json!({"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"]});
        assert_eq!(row(&COLUMNS, &object)[1..5], ["Bound", "v", "2Gi", "RWO"]);
    }
}
