//! Pods, and the templates that other kinds make pods of.

mod containers;
mod defaults;
mod environment;
mod older_volumes;
mod probes;
mod resources;
mod scheduling;
mod security;
mod spec;
mod table;
mod template;
mod update;
mod volumes;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    fields,
};
use serde_json::{Value, json};

pub(super) use resources::{amount, limit_name, quota_name};
pub(super) use scheduling::node_selector;
pub(super) use scheduling::tolerations;
pub(super) use template::{Owner, default_template, template_warnings, validate_template};

pub(super) use volumes::source as volume_source;

use super::{
    fill,
    read::{flag, list, text},
};
use crate::{registry::Hooks, table::Columns};

/// What is checked differently in a pod than in a template of one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Pod,
    Template,
}

pub(super) struct Pod;

/// What is wrong with a pod, new or not.
fn validate_spec(object: &Value) -> Vec<FieldError> {
    spec::validate(object.get("spec").unwrap_or(&Value::Null), &FieldPath::root("spec"), Place::Pod)
}

impl Hooks for Pod {
    fn default(&self, object: &mut Value) {
        if let Some(spec) = fill::child(object, "spec") {
            defaults::spec(spec);
            defaults::pod_only(spec);
        }
        if let Some(status) = fill::child(object, "status") {
            defaults::status(status);
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"phase": "Pending", "qosClass": resources::quality(object)});
        // A pod that is held back says so from its first moment.
        if !list(object, "/spec/schedulingGates").is_empty() {
            object["status"]["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
    }

    fn prepare_subresource(&self, subresource: &str, object: &mut Value, old: &Value) {
        match subresource {
            "status" => update::keep_status(object, old),
            "resize" => update::keep_pod_resources(object, old),
            _ => {}
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("spec");
        let mut errors = validate_spec(object);
        if !list(object, "/spec/ephemeralContainers").is_empty() {
            let path = path.child("ephemeralContainers");
            errors.push(FieldError::forbidden(&path, "cannot be set on create"));
        }
        errors
    }

    fn validate_replacing(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        let mut errors = validate_spec(object);
        errors.extend(match subresource {
            "" => self.validate_update(object, old),
            subresource => self.validate_subresource(subresource, object, old),
        });
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        update::changes(object, old)
    }

    fn validate_subresource(&self, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
        match subresource {
            "ephemeralcontainers" => update::ephemeral_containers(object, old),
            "resize" => update::resize(object, old),
            // Whoever may bind a pod to a node decides where it runs.
            "binding" => Vec::new(),
            _ => update::changes(object, old),
        }
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        template::spec_warnings(object.get("spec").unwrap_or(&Value::Null), &FieldPath::root("spec"))
    }

    fn columns(&self) -> Option<&dyn Columns> {
        Some(&table::PODS)
    }

    fn field(&self, object: &Value, path: &str) -> String {
        match path {
            "spec.hostNetwork" => flag(object, "/spec/hostNetwork").to_string(),
            "status.podIPs" | "status.podIP" => text(object, "/status/podIPs/0/ip").to_owned(),
            _ => fields::field_text(object, path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::check::tests::told, *};

    #[test]
    fn a_minimal_pod_gets_its_defaults() {
        let mut pod = json!({"spec": {"containers": [{"name": "a", "image": "nginx", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}});
        Pod.default(&mut pod);
        assert_eq!(
            pod,
            json!({"spec": {
                "containers": [{"name": "a", "image": "nginx", "imagePullPolicy": "Always",
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                    "ports": [{"containerPort": 80, "protocol": "TCP"}]}],
                "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "securityContext": {}, "schedulerName": "default-scheduler",
                "terminationGracePeriodSeconds": 30, "enableServiceLinks": true,
            }})
        );
        assert!(told(Pod.validate(&pod)).is_empty());
        Pod.prepare_create(&mut pod);
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    }

    #[test]
    fn computed_fields_can_be_selected() {
        let pod = json!({"spec": {"nodeName": "n"}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
        for (path, expected) in [
            ("spec.hostNetwork", "false"),
            ("status.podIP", "10.0.0.1"),
            ("status.podIPs", "10.0.0.1"),
            ("spec.nodeName", "n"),
        ] {
            assert_eq!(Pod.field(&pod, path), expected);
        }
    }

    #[test]
    fn a_gated_pod_is_not_scheduled() {
        let mut pod = json!({"spec": {"schedulingGates": [{"name": "g"}]}});
        Pod.prepare_create(&mut pod);
        assert_eq!(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
    }
}
