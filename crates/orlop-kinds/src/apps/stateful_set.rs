//! StatefulSet: pods with stable identity and storage.

use orlop_api::{
    field_error::{FieldError, FieldPath},
    names::NameRule,
};
use serde_json::{Value, json};

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{integer, list, present, text},
    core::persistent_volume_claim,
    core::workload::{
        is_zero, set_template_defaults, template_warnings, validate_selector_and_template,
        validate_status_counts,
    },
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age, container_cells, name},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    name_rule: NameRule::Label,
    flags: StrategyFlags { tracks_generation: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &StatefulSet,
    ..BuiltinKind::new("apps", "statefulsets")
};

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Ready"),
        ColumnDefinition::AGE,
        ColumnDefinition::wide("Containers"),
        ColumnDefinition::wide("Images"),
    ],
    cells: |object, now| {
        let [names, images] = container_cells(object, "/spec/template/spec");
        let ready =
            format!("{}/{}", integer(object, "/status/readyReplicas"), integer(object, "/spec/replicas"));
        vec![name(object), ready.into(), age(object, now), names, images]
    },
};

pub(crate) struct StatefulSet;

impl Strategy for StatefulSet {
    fn set_defaults(&self, object: &mut Value) {
        let Some(spec) = set_template_defaults(object) else { return };
        defaulting::set_if_zero(spec, "podManagementPolicy", "OrderedReady");
        defaulting::set_if_absent(spec, "updateStrategy", json!({}));
        if let Some(strategy) = defaulting::object_mut(spec, "updateStrategy") {
            if text(strategy, "/type").is_empty() {
                strategy["type"] = "RollingUpdate".into();
                defaulting::set_if_absent(strategy, "rollingUpdate", json!({}));
            }
            if text(strategy, "/type") == "RollingUpdate"
                && let Some(rolling) = defaulting::object_mut(strategy, "rollingUpdate")
            {
                defaulting::set_if_absent(rolling, "partition", 0);
                defaulting::set_if_absent(rolling, "maxUnavailable", 1);
            }
        }
        defaulting::set_if_absent(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
        if let Some(policy) = defaulting::object_mut(spec, "persistentVolumeClaimRetentionPolicy") {
            defaulting::set_if_zero(policy, "whenDeleted", "Retain");
            defaulting::set_if_zero(policy, "whenScaled", "Retain");
        }
        defaulting::set_if_absent(spec, "replicas", 1);
        defaulting::set_if_absent(spec, "revisionHistoryLimit", 10);
        for claim in defaulting::items_mut(spec, "volumeClaimTemplates") {
            defaulting::set_if_absent(claim, "apiVersion", "v1");
            defaulting::set_if_absent(claim, "kind", "PersistentVolumeClaim");
            if let Some(spec) = defaulting::object_mut(claim, "spec") {
                persistent_volume_claim::set_spec_defaults(spec);
            }
            defaulting::set_if_absent(claim, "status", json!({}));
            if let Some(status) = defaulting::object_mut(claim, "status") {
                defaulting::set_if_zero(status, "phase", "Pending");
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors = validate_management(spec, &path);
        errors.extend(validate_strategy(spec, &path.child("updateStrategy")));
        if let Some(policy) = present(spec, "/persistentVolumeClaimRetentionPolicy") {
            let path = path.child("persistentVolumeClaimRetentionPolicy");
            for field in ["whenDeleted", "whenScaled"] {
                errors.extend(validation::validate_supported(policy, field, &path, &["Retain", "Delete"]));
            }
        }
        errors.extend(validation::validate_items(spec, "volumeClaimTemplates", &path, |claim, path| {
            persistent_volume_claim::validate_spec(
                claim.get("spec").unwrap_or(&Value::Null),
                &path.child("spec"),
            )
        }));
        errors.extend(validation::validate_non_negative(spec, "replicas", &path));
        errors.extend(validation::validate_non_negative(spec, "minReadySeconds", &path));
        if integer(spec, "/ordinals/start") < 0 {
            let start = integer(spec, "/ordinals/start");
            errors.push(FieldError::invalid(&path.child("ordinals.start"), start, validation::NOT_NEGATIVE));
        }
        let service = text(spec, "/serviceName");
        if !service.is_empty() {
            errors.extend(validation::validate_dns_label(service, &path.child("serviceName")));
        }
        errors.extend(validate_selector_and_template(
            &with_claim_volumes(spec),
            &path,
            "statefulset",
            "StatefulSet",
        ));
        let fields = ["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        errors.extend(validate_status_counts(object, &fields, &fields[1..]));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("spec");
        let none = Value::Null;
        let (new, old) = (object.get("spec").unwrap_or(&none), old.get("spec").unwrap_or(&none));
        let kept = ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"];
        kept.iter().filter_map(|field| validation::validate_immutable(new, old, field, &path)).collect()
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        let mut warnings = template_warnings(object);
        let path = FieldPath::root("spec").child("volumeClaimTemplates");
        for (index, claim) in list(object, "/spec/volumeClaimTemplates").iter().enumerate() {
            let spec = claim.get("spec").unwrap_or(&Value::Null);
            warnings.extend(persistent_volume_claim::spec_warnings(spec, &path.index(index)));
        }
        if integer(object, "/spec/revisionHistoryLimit") < 0 {
            warnings.push(
                "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                 recommended"
                    .to_owned(),
            );
        }
        warnings
    }
}

fn validate_management(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let path = path.child("podManagementPolicy");
    match text(spec, "/podManagementPolicy") {
        "" => vec![FieldError::required(&path, "")],
        "OrderedReady" | "Parallel" => Vec::new(),
        other => vec![FieldError::invalid(&path, other, "must be 'OrderedReady' or 'Parallel'")],
    }
}

fn validate_strategy(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let none = json!({});
    let strategy = spec.get("updateStrategy").unwrap_or(&none);
    let at = path.child("rollingUpdate");
    match (text(strategy, "/type"), present(strategy, "/rollingUpdate")) {
        ("", _) => vec![FieldError::required(path, "")],
        ("OnDelete", Some(rolling)) => {
            vec![FieldError::invalid(&at, rolling.clone(), "only allowed for updateStrategy 'RollingUpdate'")]
        }
        ("RollingUpdate", Some(rolling)) => {
            let mut errors: Vec<FieldError> =
                validation::validate_non_negative(rolling, "partition", &at).into_iter().collect();
            if let Some(unavailable) = present(rolling, "/maxUnavailable") {
                let at = at.child("maxUnavailable");
                errors.extend(validation::validate_int_or_percent(unavailable, &at));
                if is_zero(Some(unavailable)) {
                    errors.push(FieldError::invalid(&at, unavailable.clone(), "cannot be 0"));
                }
                errors.extend(validation::validate_at_most_100_percent(unavailable, &at));
            }
            errors
        }
        ("OnDelete" | "RollingUpdate", None) => Vec::new(),
        _ => vec![FieldError::invalid(path, strategy.clone(), "must be 'RollingUpdate' or 'OnDelete'")],
    }
}

/// Returns the spec as the controller uses it: with a volume for each claim template.
fn with_claim_volumes(spec: &Value) -> Value {
    let claims = list(spec, "/volumeClaimTemplates").iter().map(|claim| text(claim, "/metadata/name"));
    let claims: Vec<&str> = claims.collect();
    let mut spec = spec.clone();
    let Some(pod) = defaulting::object_at_mut(&mut spec, "/template/spec") else { return spec };
    defaulting::remove_field(pod, "hostname");
    defaulting::remove_field(pod, "subdomain");
    if !claims.is_empty() {
        let own = list(pod, "/volumes").iter().filter(|volume| !claims.contains(&text(volume, "/name")));
        let claimed =
            claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        let volumes: Vec<Value> = claimed.chain(own.cloned()).collect();
        pod["volumes"] = volumes.into();
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{core::workload::tests::workload, printer::tests::row, validation::tests::messages};

    fn set() -> Value {
        let mut object = workload();
        object["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
        object["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
            json!([{"name": "data", "mountPath": "/data"}]);
        StatefulSet.set_defaults(&mut object);
        object
    }

    #[test]
    fn defaults_are_set_and_claim_templates_become_volumes() {
        let object = set();
        let spec = &object["spec"];
        assert_eq!(spec["podManagementPolicy"], "OrderedReady");
        assert_eq!(
            spec["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1}})
        );
        assert_eq!(
            spec["persistentVolumeClaimRetentionPolicy"],
            json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
        );
        assert_eq!((&spec["replicas"], &spec["revisionHistoryLimit"]), (&json!(1), &json!(10)));
        assert_eq!(spec["volumeClaimTemplates"][0]["status"], json!({"phase": "Pending"}));
        assert_eq!(spec["volumeClaimTemplates"][0]["spec"]["volumeMode"], "Filesystem");
        assert!(messages(StatefulSet.validate(&object)).is_empty());
        assert_eq!(row(&COLUMNS, &object), ["w", "0/1", "<unknown>", "c", "x:1"]);
    }

    #[test]
    fn invalid_policies_are_rejected() {
        let mut object = set();
        object["spec"]["podManagementPolicy"] = "x".into();
        object["spec"]["updateStrategy"] = json!({"type": "OnDelete", "rollingUpdate": {}});
        assert_eq!(
            messages(StatefulSet.validate(&object)),
            [
                r#"spec.podManagementPolicy: Invalid value: "x": must be 'OrderedReady' or 'Parallel'"#,
                "spec.updateStrategy.rollingUpdate: Invalid value: {}: only allowed for updateStrategy 'RollingUpdate'",
            ]
        );
        let mut changed = set();
        changed["spec"]["serviceName"] = "s".into();
        changed["spec"]["replicas"] = 3.into();
        assert_eq!(
            messages(StatefulSet.validate_update(&changed, &set())),
            [r#"spec.serviceName: Invalid value: "s": field is immutable"#]
        );
    }
}
