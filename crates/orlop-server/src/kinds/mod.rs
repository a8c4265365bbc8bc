//! What each built-in kind does beyond its schema: a file a kind.

mod addresses;
mod admission;
mod admission_policy;
mod api_service;
mod autoscaler;
mod autoscaler_metrics;
mod batch;
mod certificates;
mod check;
mod columns;
mod config_map;
pub(crate) mod custom_resource_definition;
mod disruption_budget;
mod dynamic_resources;
mod endpoints;
mod event;
mod fill;
mod flow_control;
mod ingress;
mod ip_range;
mod ip_text;
mod lease;
mod namespace;
mod network_policy;
mod node;
mod persistent_volume;
mod persistent_volume_claim;
mod pod;
mod priority_class;
mod quantities;
mod quota;
mod rbac;
mod read;
mod runtime_class;
mod same;
mod secret;
mod secret_pair;
mod service;
mod service_account;
mod signing_conditions;
mod storage;
mod storage_class;
mod storage_drivers;
mod tables;
mod workload;

use orlop_api::{group_version::GroupResource, status::Status};
use serde_json::Value;

use self::columns::{NAME_AND_AGE, TableOnly};
use crate::{
    kinds::custom_resource_definition::CustomResourceDefinition,
    registry::{Hooks, Kind, Plain},
};

pub(crate) use namespace::{has_content, holds_namespace, mark_deleted};

/// The hooks of a built-in kind. A kind that is not here is its schema, with a table of name and creation.
pub(crate) fn hooks(group: &str, resource: &str) -> Box<dyn Hooks> {
    match (group, resource) {
        ("", _) => core(resource),
        ("apps", "controllerrevisions") => Box::new(workload::ControllerRevision),
        ("apps", "daemonsets") => Box::new(workload::DaemonSet),
        ("apps", "deployments") => Box::new(workload::Deployment),
        ("apps", "replicasets") => Box::new(workload::ReplicaSet),
        ("apps", "statefulsets") => Box::new(workload::StatefulSet),
        ("batch", "cronjobs") => Box::new(batch::CronJob),
        ("batch", "jobs") => Box::new(batch::Job),
        ("autoscaling", _) => Box::new(autoscaler::HorizontalPodAutoscaler),
        ("coordination.k8s.io", "leases") => Box::new(lease::Lease),
        ("discovery.k8s.io", "endpointslices") => Box::new(endpoints::EndpointSlice),
        ("events.k8s.io", "events") => Box::new(event::NewEvent),
        ("node.k8s.io", "runtimeclasses") => Box::new(runtime_class::RuntimeClass),
        ("policy", "poddisruptionbudgets") => Box::new(disruption_budget::PodDisruptionBudget),
        ("scheduling.k8s.io", "priorityclasses") => Box::new(priority_class::PriorityClass),
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => Box::new(flow_control::FlowSchema),
        ("flowcontrol.apiserver.k8s.io", _) => Box::new(flow_control::PriorityLevel),
        ("rbac.authorization.k8s.io", "roles") => Box::new(rbac::Role { namespaced: true }),
        ("rbac.authorization.k8s.io", "clusterroles") => Box::new(rbac::Role { namespaced: false }),
        ("rbac.authorization.k8s.io", "rolebindings") => Box::new(rbac::Binding { namespaced: true }),
        ("rbac.authorization.k8s.io", _) => Box::new(rbac::Binding { namespaced: false }),
        ("networking.k8s.io", "ingresses") => Box::new(ingress::Ingress),
        ("networking.k8s.io", "ingressclasses") => Box::new(ingress::IngressClass),
        ("networking.k8s.io", "networkpolicies") => Box::new(network_policy::NetworkPolicy),
        ("admissionregistration.k8s.io", _) => admission_hooks(resource),
        ("certificates.k8s.io", "certificatesigningrequests") => {
            Box::new(certificates::CertificateSigningRequest)
        }
        ("apiregistration.k8s.io", _) => Box::new(api_service::ApiService),
        ("apiextensions.k8s.io", _) => Box::new(CustomResourceDefinition),
        ("resource.k8s.io", "resourceclaims") => {
            Box::new(dynamic_resources::ResourceClaim { template: false })
        }
        ("resource.k8s.io", "resourceclaimtemplates") => {
            Box::new(dynamic_resources::ResourceClaim { template: true })
        }
        ("storage.k8s.io", "storageclasses") => Box::new(storage_class::StorageClass),
        ("storage.k8s.io", "csidrivers") => Box::new(storage::CsiDriver),
        ("storage.k8s.io", "csinodes") => Box::new(storage_drivers::CsiNode),
        ("storage.k8s.io", "csistoragecapacities") => Box::new(storage_drivers::CsiStorageCapacity),
        ("storage.k8s.io", "volumeattachments") => Box::new(storage_drivers::VolumeAttachment),
        ("storage.k8s.io", "volumeattributesclasses") => Box::new(storage_drivers::VolumeAttributesClass),
        ("networking.k8s.io", "ipaddresses") => Box::new(addresses::IpAddress),
        ("networking.k8s.io", "servicecidrs") => Box::new(addresses::ServiceCidr),
        _ => match table_only(group, resource) {
            Some(table) => Box::new(TableOnly(table)),
            None => Box::new(Plain),
        },
    }
}

fn core(resource: &str) -> Box<dyn Hooks> {
    match resource {
        "componentstatuses" => Box::new(TableOnly(&tables::COMPONENT_STATUSES)),
        "configmaps" => Box::new(config_map::ConfigMap),
        "endpoints" => Box::new(endpoints::Endpoints),
        "events" => Box::new(event::CoreEvent),
        "limitranges" => Box::new(quota::LimitRange),
        "namespaces" => Box::new(namespace::Namespace),
        "nodes" => Box::new(node::Node),
        "persistentvolumeclaims" => Box::new(persistent_volume_claim::PersistentVolumeClaim),
        "persistentvolumes" => Box::new(persistent_volume::PersistentVolume),
        "pods" => Box::new(pod::Pod),
        "podtemplates" => Box::new(workload::PodTemplate),
        "replicationcontrollers" => Box::new(workload::ReplicationController),
        "resourcequotas" => Box::new(quota::ResourceQuota),
        "secrets" => Box::new(secret::Secret),
        "serviceaccounts" => Box::new(service_account::ServiceAccount),
        "services" => Box::new(service::Service),
        _ => Box::new(Plain),
    }
}

fn admission_hooks(resource: &str) -> Box<dyn Hooks> {
    match resource {
        "mutatingwebhookconfigurations" => Box::new(admission::WebhookConfiguration { mutating: true }),
        "validatingwebhookconfigurations" => Box::new(admission::WebhookConfiguration { mutating: false }),
        "mutatingadmissionpolicies" => Box::new(admission_policy::Policy { mutating: true }),
        "validatingadmissionpolicies" => Box::new(admission_policy::Policy { mutating: false }),
        "mutatingadmissionpolicybindings" => Box::new(admission_policy::PolicyBinding { mutating: true }),
        _ => Box::new(admission_policy::PolicyBinding { mutating: false }),
    }
}

fn table_only(group: &str, resource: &str) -> Option<&'static columns::Table> {
    Some(match (group, resource) {
        ("certificates.k8s.io", "clustertrustbundles") => &certificates::CLUSTER_TRUST_BUNDLES,
        ("certificates.k8s.io", "podcertificaterequests") => &certificates::POD_CERTIFICATE_REQUESTS,
        ("resource.k8s.io", "deviceclasses") => &NAME_AND_AGE,
        ("resource.k8s.io", "devicetaintrules") => &dynamic_resources::DEVICE_TAINT_RULES,
        ("resource.k8s.io", "resourceslices") => &dynamic_resources::RESOURCE_SLICES,
        ("storagemigration.k8s.io", "storageversionmigrations") => &tables::STORAGE_VERSION_MIGRATIONS,
        _ => return None,
    })
}

/// Refuses the deletion of what the cluster cannot be without.
pub(crate) fn may_delete(kind: &Kind, name: &str) -> Result<(), Status> {
    let standing = matches!(name, "default" | "kube-system" | "kube-public");
    if kind.gvk.group.is_empty() && kind.resource == "namespaces" && standing {
        let resource = GroupResource::new("", "namespaces");
        return Err(Status::forbidden(&resource, name, "this namespace may not be deleted"));
    }
    Ok(())
}

/// Whether a deletion may say what becomes of an object's dependents: events have none, and what becomes of a
/// namespace's is settled by its first deletion.
pub(crate) fn takes_propagation(kind: &Kind, object: &Value) -> bool {
    match kind.resource.as_str() {
        "events" => !matches!(kind.gvk.group.as_str(), "" | "events.k8s.io"),
        "namespaces" => !kind.gvk.group.is_empty() || !crate::object::is_terminating(object),
        _ => true,
    }
}

/// Whether objects of a kind are given time to end. Only pods are.
pub(crate) fn ends_gracefully(kind: &Kind) -> bool {
    kind.gvk.group.is_empty() && kind.resource == "pods"
}

/// How long a deleted object is given to end.
pub(crate) fn grace_seconds(kind: &Kind, object: &Value, asked: Option<i64>) -> i64 {
    if !ends_gracefully(kind) {
        return 0;
    }
    // A pod that no node runs has nobody to wait for.
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    if text("/spec/nodeName").is_empty() || matches!(text("/status/phase"), "Succeeded" | "Failed") {
        return 0;
    }
    let own = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    // A time that is none is a second.
    match asked.or(own).unwrap_or(30) {
        ..0 => 1,
        seconds => seconds,
    }
}
