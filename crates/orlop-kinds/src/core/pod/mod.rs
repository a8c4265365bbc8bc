//! Pod, and the pod templates of other kinds.

mod columns;
mod containers;
mod defaults;
mod environment;
mod legacy_volumes;
mod pod_resources;
mod probes;
mod projected_volumes;
mod resources;
mod scheduling;
mod security;
mod spec;
mod template;
mod update;
mod volume_files;
mod volumes;
mod windows;

use orlop_api::{
    field_error::{FieldError, FieldPath},
    fields,
};
use serde_json::{Value, json};

use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{flag, list, text},
    defaulting,
    strategy::{RequestContext, Strategy},
    update_scope::{ResetFields, UpdateScope, UpdateScopes},
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { returns_deleted_object: true, tracks_generation: true, ..StrategyFlags::BUILTIN },
    selectable_fields: &[
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ],
    update_scopes: UPDATE_SCOPES,
    columns: &columns::COLUMNS,
    strategy: &Pod,
    ..BuiltinKind::new("", "pods")
};

const DEFAULT_GRACE_PERIOD_SECONDS: i64 = 30;

const UPDATE_SCOPES: UpdateScopes = &[
    ("status", UpdateScope::without(&["/spec", "/metadata/deletionTimestamp", "/metadata/ownerReferences"])),
    (
        "ephemeralcontainers",
        UpdateScope {
            preserved: PRESERVED_FIELDS,
            except: &["/spec/ephemeralContainers"],
            reset: ResetFields::AllExcept(&["/spec/ephemeralContainers"]),
        },
    ),
    // A resize may change pod-level resources, but no manager comes to own them.
    (
        "resize",
        UpdateScope {
            preserved: PRESERVED_FIELDS,
            except: RESIZABLE_FIELDS,
            reset: ResetFields::AllExcept(RESIZABLE_FIELDS.split_at(4).0),
        },
    ),
];

/// Fields that subresources which change a part of the spec preserve.
const PRESERVED_FIELDS: &[&str] = &[
    "/spec",
    "/status",
    "/metadata/annotations",
    "/metadata/deletionTimestamp",
    "/metadata/finalizers",
    "/metadata/generation",
    "/metadata/labels",
    "/metadata/ownerReferences",
];

const RESIZABLE_FIELDS: &[&str] = &[
    "/spec/containers/*/resources",
    "/spec/containers/*/resizePolicy",
    "/spec/initContainers/*/resources",
    "/spec/initContainers/*/resizePolicy",
    "/spec/resources",
];

pub(crate) use resources::{
    validate_container_resource_name, validate_limit_resource_name, validate_quota_resource_name,
    validate_requirements, validate_resource_value,
};
pub(crate) use scheduling::validate_node_selector;
pub(crate) use scheduling::validate_tolerations;
pub(crate) use template::{Owner, set_template_defaults, template_warnings, validate_template};

pub(crate) use volumes::validate_source as volume_source;

/// Context of a pod spec: a Pod's or a pod template's; a few rules differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PodSpecKind {
    Pod,
    Template,
}

pub(crate) struct Pod;

/// Validates a new or an updated pod.
fn validate_spec(object: &Value) -> Vec<FieldError> {
    spec::validate(object.get("spec").unwrap_or(&Value::Null), &FieldPath::root("spec"), PodSpecKind::Pod)
}

impl Strategy for Pod {
    fn set_defaults(&self, object: &mut Value) {
        if let Some(spec) = defaulting::object_mut(object, "spec") {
            defaults::set_spec_defaults(spec);
            defaults::set_pod_only_defaults(spec);
        }
        if let Some(status) = defaulting::object_mut(object, "status") {
            defaults::sync_pod_ips(status);
        }
    }

    fn prepare_for_create(&self, object: &mut Value, _context: &RequestContext<'_>) {
        object["status"] = json!({"phase": "Pending", "qosClass": resources::qos_class(object)});
        // A gated pod reports it from the start.
        if !list(object, "/spec/schedulingGates").is_empty() {
            object["status"]["conditions"] = json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }]);
        }
    }

    fn prepare_for_subresource_update(
        &self,
        subresource: &str,
        object: &mut Value,
        old: &Value,
        _context: &RequestContext<'_>,
    ) {
        match subresource {
            "status" => update::restore_status_fields(object, old),
            "resize" => update::restore_pod_resources(object, old),
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

    fn validate_replacement(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        let mut errors = validate_spec(object);
        // A binding brings annotations of its own.
        if subresource != "binding" {
            errors.extend(update::validate_annotations_update(object, old));
        }
        errors.extend(match subresource {
            "" => self.validate_update(object, old),
            subresource => self.validate_subresource_update(subresource, object, old),
        });
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        update::validate_spec_update(object, old)
    }

    fn validate_subresource_update(&self, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
        match subresource {
            "ephemeralcontainers" => update::validate_ephemeral_containers_update(object, old),
            "resize" => update::validate_resize(object, old),
            // The `binding` subresource may change the node.
            "binding" => Vec::new(),
            _ => update::validate_spec_update(object, old),
        }
    }

    fn warnings_on_create(&self, object: &Value) -> Vec<String> {
        template::spec_warnings(object.get("spec").unwrap_or(&Value::Null), &FieldPath::root("spec"))
    }

    /// Pods are the only kind with graceful deletion.
    fn grace_period_seconds(&self, object: &Value, requested: Option<i64>) -> Option<i64> {
        // No kubelet would confirm the end of a pod that is not bound or has terminated.
        if text(object, "/spec/nodeName").is_empty()
            || matches!(text(object, "/status/phase"), "Succeeded" | "Failed")
        {
            return Some(0);
        }
        let own = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
        // A negative grace period becomes 1 s, as in Kubernetes.
        Some(match requested.or(own).unwrap_or(DEFAULT_GRACE_PERIOD_SECONDS) {
            ..0 => 1,
            seconds => seconds,
        })
    }

    fn field_value(&self, object: &Value, path: &str) -> String {
        match path {
            "spec.hostNetwork" => flag(object, "/spec/hostNetwork").to_string(),
            "status.podIPs" | "status.podIP" => text(object, "/status/podIPs/0/ip").to_owned(),
            _ => fields::field_text(object, path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strategy::tests::context;
    use crate::validation::tests::messages;

    #[test]
    fn minimal_pod_defaults_are_set() {
        let mut pod = json!({"spec": {"containers": [{"name": "a", "image": "nginx", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}});
        Pod.set_defaults(&mut pod);
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
        assert!(messages(Pod.validate(&pod)).is_empty());
        Pod.prepare_for_create(&mut pod, &context());
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    }

    #[test]
    fn computed_fields_are_selectable() {
        let pod = json!({"spec": {"nodeName": "n"}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
        for (path, expected) in [
            ("spec.hostNetwork", "false"),
            ("status.podIP", "10.0.0.1"),
            ("status.podIPs", "10.0.0.1"),
            ("spec.nodeName", "n"),
        ] {
            assert_eq!(Pod.field_value(&pod, path), expected);
        }
    }

    #[test]
    fn gated_pod_reports_scheduling_gated() {
        let mut pod = json!({"spec": {"schedulingGates": [{"name": "g"}]}});
        Pod.prepare_for_create(&mut pod, &context());
        assert_eq!(pod["status"]["conditions"][0]["reason"], "SchedulingGated");
    }
}
