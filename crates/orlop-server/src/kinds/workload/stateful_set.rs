//! Stateful sets: pods with names and storage of their own.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::{
    super::{
        check,
        columns::{Heading, Table, containers, name},
        fill, persistent_volume_claim,
        read::{integer, list, present, text},
    },
    counts, default_template, is_zero, selector_and_template, template_warnings,
};
use crate::{
    registry::Hooks,
    table::{Columns, age},
};

static TABLE: Table = Table {
    headings: &[
        Heading::NAME,
        Heading::text("Ready"),
        Heading::AGE,
        Heading::wide("Containers"),
        Heading::wide("Images"),
    ],
    cells: |object, now| {
        let [names, images] = containers(object, "/spec/template/spec");
        let ready =
            format!("{}/{}", integer(object, "/status/readyReplicas"), integer(object, "/spec/replicas"));
        vec![name(object), ready.into(), age(object, now), names, images]
    },
};

pub(in super::super) struct StatefulSet;

impl Hooks for StatefulSet {
    fn default(&self, object: &mut Value) {
        let Some(spec) = default_template(object) else { return };
        fill::empty(spec, "podManagementPolicy", "OrderedReady");
        fill::absent(spec, "updateStrategy", json!({}));
        if let Some(strategy) = fill::child(spec, "updateStrategy") {
            if text(strategy, "/type").is_empty() {
                strategy["type"] = "RollingUpdate".into();
                fill::absent(strategy, "rollingUpdate", json!({}));
            }
            if text(strategy, "/type") == "RollingUpdate"
                && let Some(rolling) = fill::child(strategy, "rollingUpdate")
            {
                fill::absent(rolling, "partition", 0);
            }
        }
        fill::absent(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
        if let Some(policy) = fill::child(spec, "persistentVolumeClaimRetentionPolicy") {
            fill::empty(policy, "whenDeleted", "Retain");
            fill::empty(policy, "whenScaled", "Retain");
        }
        fill::absent(spec, "replicas", 1);
        fill::absent(spec, "revisionHistoryLimit", 10);
        for claim in fill::items(spec, "volumeClaimTemplates") {
            fill::absent(claim, "apiVersion", "v1");
            fill::absent(claim, "kind", "PersistentVolumeClaim");
            if let Some(spec) = fill::child(claim, "spec") {
                persistent_volume_claim::default_spec(spec);
            }
            fill::absent(claim, "status", json!({}));
            if let Some(status) = fill::child(claim, "status") {
                fill::empty(status, "phase", "Pending");
            }
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let (spec, path) = (object.get("spec").unwrap_or(&Value::Null), FieldPath::root("spec"));
        let mut errors = management(spec, &path);
        errors.extend(strategy(spec, &path.child("updateStrategy")));
        if let Some(policy) = present(spec, "/persistentVolumeClaimRetentionPolicy") {
            let path = path.child("persistentVolumeClaimRetentionPolicy");
            for field in ["whenDeleted", "whenScaled"] {
                errors.extend(check::supported(policy, field, &path, &["Retain", "Delete"]));
            }
        }
        errors.extend(check::every(spec, "volumeClaimTemplates", &path, |claim, path| {
            persistent_volume_claim::spec(claim.get("spec").unwrap_or(&Value::Null), &path.child("spec"))
        }));
        errors.extend(check::not_negative(spec, "replicas", &path));
        errors.extend(check::not_negative(spec, "minReadySeconds", &path));
        if integer(spec, "/ordinals/start") < 0 {
            let start = integer(spec, "/ordinals/start");
            errors.push(FieldError::invalid(&path.child("ordinals.start"), start, check::NOT_NEGATIVE));
        }
        let service = text(spec, "/serviceName");
        if !service.is_empty() {
            errors.extend(check::dns_label(service, &path.child("serviceName")));
        }
        errors.extend(selector_and_template(&with_claims(spec), &path, "statefulset", "StatefulSet"));
        let fields = ["replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        errors.extend(counts(object, &fields, &fields[1..]));
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("spec");
        let none = Value::Null;
        let (new, old) = (object.get("spec").unwrap_or(&none), old.get("spec").unwrap_or(&none));
        let kept = ["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"];
        kept.iter().filter_map(|field| check::immutable(new, old, field, &path)).collect()
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        let mut warnings = template_warnings(object);
        if integer(object, "/spec/revisionHistoryLimit") < 0 {
            warnings.push(
                "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is \
                 recommended"
                    .to_owned(),
            );
        }
        warnings
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&TABLE)
    }
}

fn management(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
    let path = path.child("podManagementPolicy");
    match text(spec, "/podManagementPolicy") {
        "" => vec![FieldError::required(&path, "")],
        "OrderedReady" | "Parallel" => Vec::new(),
        other => vec![FieldError::invalid(&path, other, "must be 'OrderedReady' or 'Parallel'")],
    }
}

fn strategy(spec: &Value, path: &FieldPath) -> Vec<FieldError> {
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
                check::not_negative(rolling, "partition", &at).into_iter().collect();
            if let Some(unavailable) = present(rolling, "/maxUnavailable") {
                let at = at.child("maxUnavailable");
                errors.extend(check::count_or_percentage(unavailable, &at));
                if is_zero(Some(unavailable)) {
                    errors.push(FieldError::invalid(&at, unavailable.clone(), "cannot be 0"));
                }
                errors.extend(check::at_most_all(unavailable, &at));
            }
            errors
        }
        ("OnDelete" | "RollingUpdate", None) => Vec::new(),
        _ => vec![FieldError::invalid(path, strategy.clone(), "must be 'RollingUpdate' or 'OnDelete'")],
    }
}

/// The spec as its pods will see it: a volume for each claim, and names that the controller gives.
fn with_claims(spec: &Value) -> Value {
    let claims = list(spec, "/volumeClaimTemplates").iter().map(|claim| text(claim, "/metadata/name"));
    let claims: Vec<&str> = claims.collect();
    let mut spec = spec.clone();
    let Some(pod) = fill::at(&mut spec, "/template/spec") else { return spec };
    fill::remove(pod, "hostname");
    fill::remove(pod, "subdomain");
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
    use super::{
        super::{
            super::{check::tests::told, columns::tests::row},
            tests::workload,
        },
        *,
    };

    fn set() -> Value {
        let mut object = workload();
        object["spec"]["volumeClaimTemplates"] = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
        object["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
            json!([{"name": "data", "mountPath": "/data"}]);
        StatefulSet.default(&mut object);
        object
    }

    #[test]
    fn a_set_gets_its_defaults_and_its_claims_are_volumes() {
        let object = set();
        let spec = &object["spec"];
        assert_eq!(spec["podManagementPolicy"], "OrderedReady");
        assert_eq!(
            spec["updateStrategy"],
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0}})
        );
        assert_eq!(
            spec["persistentVolumeClaimRetentionPolicy"],
            json!({"whenDeleted": "Retain", "whenScaled": "Retain"})
        );
        assert_eq!((&spec["replicas"], &spec["revisionHistoryLimit"]), (&json!(1), &json!(10)));
        assert_eq!(spec["volumeClaimTemplates"][0]["status"], json!({"phase": "Pending"}));
        assert_eq!(spec["volumeClaimTemplates"][0]["spec"]["volumeMode"], "Filesystem");
        assert!(told(StatefulSet.validate(&object)).is_empty());
        assert_eq!(row(&TABLE, &object), ["w", "0/1", "<unknown>", "c", "x:1"]);
    }

    #[test]
    fn policies_are_checked() {
        let mut object = set();
        object["spec"]["podManagementPolicy"] = "x".into();
        object["spec"]["updateStrategy"] = json!({"type": "OnDelete", "rollingUpdate": {}});
        assert_eq!(
            told(StatefulSet.validate(&object)),
            [
                r#"spec.podManagementPolicy: Invalid value: "x": must be 'OrderedReady' or 'Parallel'"#,
                "spec.updateStrategy.rollingUpdate: Invalid value: {}: only allowed for updateStrategy 'RollingUpdate'",
            ]
        );
        let mut changed = set();
        changed["spec"]["serviceName"] = "s".into();
        changed["spec"]["replicas"] = 3.into();
        assert_eq!(
            told(StatefulSet.validate_update(&changed, &set())),
            [r#"spec.serviceName: Invalid value: "s": field is immutable"#]
        );
    }
}
