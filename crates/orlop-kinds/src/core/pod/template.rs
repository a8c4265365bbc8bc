//! Pod templates of kinds that create pods.

use std::collections::{HashMap, hash_map::Entry};

use orlop_api::{
    field_error::{FieldError, FieldPath},
    labels::{self, Selector},
    object_meta,
};
use serde_json::{Value, json};

use super::{PodSpecKind, defaults, spec};
use crate::{
    accessors::{list, map, mark_repeated, present, scalar_text, text},
    defaulting,
};

/// Requirements of the kind that owns a template.
pub(crate) struct Owner<'a> {
    /// The kind, if its pods must have `restartPolicy: Always` and no deadline.
    pub(crate) restarts_always: Option<&'a str>,
}

/// Sets the defaults of a pod template.
pub(crate) fn set_template_defaults(template: &mut Value) {
    defaulting::set_if_absent(template, "spec", json!({}));
    if let Some(spec) = defaulting::object_mut(template, "spec") {
        defaults::set_spec_defaults(spec);
    }
}

/// Validates a pod template, and that the selector matches its labels.
pub(crate) fn validate_template(
    template: &Value,
    selector: Option<&Selector>,
    owner: &Owner<'_>,
    path: &FieldPath,
) -> Vec<FieldError> {
    let given = map(template, "/metadata/labels");
    let mut errors = Vec::new();
    if let Some(selector) = selector
        && !selector.is_everything()
        && !selector.matches(Some(given))
    {
        let labels = path.child("metadata").child("labels");
        let value = if given.is_empty() { Value::Null } else { Value::Object(given.clone()) };
        errors.push(FieldError::invalid(&labels, value, "`selector` does not match template `labels`"));
    }
    errors.extend(labels::validate(given, &path.child("labels")));
    let annotations = map(template, "/metadata/annotations");
    errors.extend(object_meta::validate_annotations(annotations, &path.child("annotations")));
    let spec_path = path.child("spec");
    errors.extend(spec::validate(
        template.get("spec").unwrap_or(&Value::Null),
        &spec_path,
        PodSpecKind::Template,
    ));
    if !list(template, "/spec/ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(&spec_path.child("ephemeralContainers"), detail));
    }
    if let Some(kind) = owner.restarts_always {
        let policy = text(template, "/spec/restartPolicy");
        if policy != "Always" {
            errors.push(FieldError::not_supported(&spec_path.child("restartPolicy"), policy, &["Always"]));
        }
        if present(template, "/spec/activeDeadlineSeconds").is_some() {
            let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
            errors.push(FieldError::forbidden(&spec_path.child("activeDeadlineSeconds"), detail));
        }
    }
    errors
}

/// Returns warnings about a pod template.
pub(crate) fn template_warnings(template: &Value, path: &FieldPath) -> Vec<String> {
    spec_warnings(template.get("spec").unwrap_or(&Value::Null), &path.child("spec"))
}

/// Returns warnings about a pod spec.
pub(crate) fn spec_warnings(spec: &Value, path: &FieldPath) -> Vec<String> {
    const LABELS: [(&str, &str); 8] = [
        ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
        ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
        (
            "failure-domain.beta.kubernetes.io/region",
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
        ),
        (
            "failure-domain.beta.kubernetes.io/zone",
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
        ),
        (
            "beta.kubernetes.io/instance-type",
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
        ),
        ("app.kubernetes.io/created-by", "deprecated since v1.9"),
        (
            "scheduler.alpha.kubernetes.io/preferAvoidPods",
            "deprecated since v1.22; use Taints and Tolerations instead",
        ),
        ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
    ];
    let mut warnings = Vec::new();
    for (index, constraint) in list(spec, "/topologySpreadConstraints").iter().enumerate() {
        if present(constraint, "/labelSelector").is_none() {
            let at = path.child("topologySpreadConstraints").index(index).child("labelSelector");
            warnings.push(format!("{at}: a null labelSelector results in matching no pod"));
        }
    }
    let selected = map(spec, "/nodeSelector");
    for (label, why) in LABELS.iter().filter(|(label, _)| selected.contains_key(*label)) {
        warnings.push(format!("{}: {why}", path.child("nodeSelector").key(label)));
    }
    for (field, containers) in
        [("initContainers", list(spec, "/initContainers")), ("containers", list(spec, "/containers"))]
    {
        for (index, container) in containers.iter().enumerate() {
            warnings.extend(repeated_env_var_warnings(container, &path.child(field).index(index)));
            warnings.extend(repeated_port_warnings(container, &path.child(field).index(index)));
        }
    }
    for (index, secret) in list(spec, "/imagePullSecrets").iter().enumerate() {
        if text(secret, "/name").is_empty() {
            let at = path.child("imagePullSecrets").index(index).child("name");
            warnings.push(format!("{at}: invalid empty name \"\""));
        }
    }
    warnings
}

/// Returns warnings about ports that are declared twice.
fn repeated_port_warnings(container: &Value, path: &FieldPath) -> Vec<String> {
    let path = path.child("ports");
    let mut known: HashMap<[String; 4], usize> = HashMap::new();
    let mut warnings = Vec::new();
    for (index, port) in list(container, "/ports").iter().enumerate() {
        let fields = ["/containerPort", "/protocol", "/hostPort", "/hostIP"];
        match known.entry(fields.map(|field| scalar_text(present(port, field)))) {
            Entry::Occupied(first) => {
                let (at, first) = (path.index(index), path.index(*first.get()));
                warnings.push(format!("{at}: duplicate port definition with {first}"));
            }
            Entry::Vacant(free) => drop(free.insert(index)),
        }
    }
    warnings
}

/// Returns warnings about variables that are set twice: the first value is hidden.
fn repeated_env_var_warnings(container: &Value, path: &FieldPath) -> Vec<String> {
    let variables = list(container, "/env");
    let repeated = mark_repeated(variables, |variable| text(variable, "/name"));
    let mut warnings = Vec::new();
    for ((index, variable), repeated) in variables.iter().enumerate().zip(repeated) {
        let name = text(variable, "/name");
        let uses_previous = || text(variable, "/value").contains(&format!("$({name})"));
        if repeated && present(variable, "/valueFrom").is_none() && !uses_previous() {
            let at = path.child("env").index(index);
            warnings.push(format!(
                "{at}: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validation::tests::messages;

    fn template() -> Value {
        let mut template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
        set_template_defaults(&mut template);
        template
    }

    #[test]
    fn selector_must_match_template_labels() {
        let owner = Owner { restarts_always: Some("ReplicaSet") };
        let path = FieldPath::root("spec").child("template");
        let selector =
            |value: &str| Selector::from_label_selector(&json!({"matchLabels": {"a": value}})).unwrap();
        assert!(messages(validate_template(&template(), Some(&selector("b")), &owner, &path)).is_empty());
        assert_eq!(
            messages(validate_template(&template(), Some(&selector("c")), &owner, &path)),
            [
                r#"spec.template.metadata.labels: Invalid value: {"a":"b"}: `selector` does not match template `labels`"#
            ]
        );
        let mut other = template();
        other["spec"]["restartPolicy"] = "Never".into();
        other["spec"]["activeDeadlineSeconds"] = 5.into();
        assert_eq!(
            messages(validate_template(&other, None, &owner, &path)),
            [
                r#"spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always""#,
                "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported",
            ]
        );
        assert!(
            messages(validate_template(&other, None, &Owner { restarts_always: None }, &path)).is_empty()
        );
    }

    #[test]
    fn surprising_fields_warn() {
        let template = json!({"spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "containers": [{"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}]}});
        assert_eq!(
            template_warnings(&template, &FieldPath::root("t")),
            [
                "t.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use \"kubernetes.io/os\" instead",
                "t.spec.containers[0].env[1]: hides previous definition of \"A\", which may be dropped when using apply",
            ]
        );
    }
}
