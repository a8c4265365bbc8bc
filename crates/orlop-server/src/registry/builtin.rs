//! The built-in kinds: the tables of resources and types, and each kind's hooks.

use std::sync::Arc;

use orlop_api::{
    group_version::{GroupVersion, GroupVersionKind},
    names::NameRule,
    schema::builtin::{self, Resource},
};

use super::{Kind, KindSchema, Retirement, Rules, Storage, Subresource, scope};
use crate::{
    conversions::{self, Forms},
    kinds,
};

/// Kinds whose updates must name the version they were made from.
const CONDITIONAL_UPDATES: &[&str] = &[
    "customresourcedefinitions",
    "apiservices",
    "leases",
    "poddisruptionbudgets",
    "mutatingwebhookconfigurations",
    "validatingwebhookconfigurations",
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "runtimeclasses",
    "csidrivers",
    "csinodes",
    "csistoragecapacities",
    "volumeattachments",
    "storageversionmigrations",
    "clustertrustbundles",
    "podcertificaterequests",
];
/// How long events are kept.
const EVENT_SECONDS: u64 = 3600;
/// Kinds that an update creates where they are missing.
const CREATED_BY_UPDATE: &[&str] = &[
    "runtimeclasses",
    "roles",
    "clusterroles",
    "rolebindings",
    "clusterrolebindings",
    "leases",
    "limitranges",
    "events",
    "services",
    "endpoints",
];
/// Kinds whose deletion is answered with what was deleted.
const RETURNED_WHEN_DELETED: &[&str] = &[
    "namespaces",
    "persistentvolumes",
    "persistentvolumeclaims",
    "pods",
    "podtemplates",
    "resourcequotas",
    "services",
    "serviceaccounts",
    "deviceclasses",
    "devicetaintrules",
    "resourceclaims",
    "resourceclaimtemplates",
    "resourceslices",
    "csidrivers",
    "csinodes",
    "storageclasses",
    "volumeattachments",
    "volumeattributesclasses",
];
/// Groups whose kinds take finalizers of any name.
const FREE_FINALIZERS: &[&str] =
    &["apiextensions.k8s.io", "apiregistration.k8s.io", "admissionregistration.k8s.io", "policy"];
/// Kinds whose generation the server keeps, because Kubernetes' strategies do.
const WITH_GENERATION: &[&str] = &[
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "mutatingwebhookconfigurations",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingwebhookconfigurations",
    "customresourcedefinitions",
    "daemonsets",
    "deployments",
    "replicasets",
    "statefulsets",
    "horizontalpodautoscalers",
    "cronjobs",
    "jobs",
    "pods",
    "podtemplates",
    "replicationcontrollers",
    "endpointslices",
    "flowschemas",
    "prioritylevelconfigurations",
    "ingresses",
    "ingressclasses",
    "networkpolicies",
    "poddisruptionbudgets",
    "deviceclasses",
    "devicetaintrules",
    "resourceslices",
];

pub(super) fn kinds() -> Vec<Arc<Kind>> {
    let (mut kinds, mut translated) = (Vec::new(), Vec::new());
    for kind in builtin::resources().iter().filter_map(kind) {
        match conversions::forms(&kind.gvk.group, &kind.gvk.version, &kind.resource) {
            Some(forms) => translated.push((kind, forms)),
            None => kinds.push(kind),
        }
    }
    for (kind, forms) in &translated {
        let stored = |known: &&mut Kind| is_stored(known, kind, forms);
        if let Some(of) = kinds.iter_mut().find(stored) {
            of.storage = of.storage.clone().with_forms(forms.clone());
        }
    }
    let mut kinds: Vec<Arc<Kind>> = kinds.into_iter().map(Arc::new).collect();
    for (mut kind, forms) in translated {
        if let Some(of) = kinds.iter().find(|known| is_stored(known, &kind, &forms)).cloned() {
            kind.storage = Storage::translated(of, forms.clone()).with_forms(forms);
        }
        kinds.push(Arc::new(kind));
    }
    kinds
}

/// Whether a kind is what another's objects are stored as.
fn is_stored(known: &Kind, kind: &Kind, forms: &Forms) -> bool {
    (known.gvk.group.as_str(), known.gvk.version.as_str()) == forms.stored_in()
        && known.resource == kind.resource
}

fn kind(resource: &Resource) -> Option<Kind> {
    let entry = builtin::type_of(resource.group, resource.version, resource.kind)?;
    let gvk = GroupVersionKind::new(resource.group, resource.version, resource.kind);
    let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    let among = |list: &[&str]| list.contains(&resource.plural);
    let subresources = resource.subresources.iter().map(|subresource| Subresource {
        name: subresource.name.to_owned(),
        gvk: match GroupVersion::parse(subresource.api_version) {
            Ok(version) if !subresource.api_version.is_empty() => version.with_kind(subresource.kind),
            _ => gvk.group_version().with_kind(subresource.kind),
        },
        verbs: owned(&subresource.verbs),
    });
    Some(Kind {
        list_kind: format!("{}List", resource.kind),
        resource: resource.plural.to_owned(),
        singular: resource.singular.to_owned(),
        namespaced: resource.namespaced,
        verbs: owned(&resource.verbs),
        short_names: owned(&resource.short_names),
        categories: owned(&resource.categories),
        subresources: subresources.collect(),
        schema: KindSchema::Builtin(entry),
        storage: Storage::own(&gvk),
        name_rule: name_rule(resource.group, resource.plural),
        rules: Rules {
            unconditional_update: !among(CONDITIONAL_UPDATES),
            create_on_update: among(CREATED_BY_UPDATE),
            returns_deleted: among(RETURNED_WHEN_DELETED),
            qualified_finalizers: !FREE_FINALIZERS.contains(&resource.group),
            orphans_by_default: matches!(
                (resource.group, resource.plural),
                ("", "replicationcontrollers") | ("batch", "jobs")
            ),
            has_generation: among(WITH_GENERATION),
            custom: false,
            ttl_seconds: (resource.plural == "events").then_some(EVENT_SECONDS),
            selectable: owned(selectable(resource.group, resource.plural)),
            scopes: scope::builtin(resource.group, resource.plural),
        },
        hooks: kinds::hooks(resource.group, resource.plural),
        retirement: Retirement::default(),
        gvk,
    })
}

fn name_rule(group: &str, plural: &str) -> NameRule {
    match (group, plural) {
        ("", "namespaces" | "services") | ("apps", "statefulsets") => NameRule::Label,
        ("rbac.authorization.k8s.io", _) => NameRule::PathSegment,
        // Nothing but what every path needs is asked of these.
        ("", "events") | ("policy", "poddisruptionbudgets") => NameRule::PathSegment,
        // An address may have colons, an APIService a trailing dot, a bundle its signer's name.
        ("networking.k8s.io", "ipaddresses")
        | ("apiregistration.k8s.io", "apiservices")
        | ("certificates.k8s.io", "certificatesigningrequests" | "clustertrustbundles") => {
            NameRule::PathSegment
        }
        _ => NameRule::Subdomain,
    }
}

/// Fields that selectors may name, besides name and namespace.
fn selectable(group: &str, plural: &str) -> &'static [&'static str] {
    match (group, plural) {
        ("", "pods") => &[
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
        ("", "nodes") => &["spec.unschedulable"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests" | "clustertrustbundles") => &["spec.signerName"],
        ("certificates.k8s.io", "podcertificaterequests") => {
            &["spec.signerName", "spec.podName", "spec.nodeName"]
        }
        ("resource.k8s.io", "resourceslices") => &["spec.nodeName", "spec.driver", "spec.pool.name"],
        _ => &[],
    }
}
