//! What each endpoint of an object may write. The object itself, its status, its approval and so on are the
//! same object in the store; a write through one leaves what the others own as it was.
//!
//! What is *kept* stays whatever a write says. What is *reset* is what nobody comes to own by writing
//! there; that is mostly the same, but Kubernetes has its exceptions, and these are facts that clients see.
//! Paths are JSON pointers, in which `*` is every item of a list.

use std::collections::BTreeMap;

use orlop_api::managed_fields::Filter;

use super::Kind;

/// What a write through one endpoint cannot change, and what it cannot own.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// What stays as it was…
    pub kept: &'static [&'static str],
    /// …but for these parts of it.
    pub but: &'static [&'static str],
    /// What nobody comes to own.
    pub reset: Reset,
}

/// What nobody comes to own.
#[derive(Clone, Copy, Debug)]
pub enum Reset {
    /// These, and what is below them.
    These(&'static [&'static str]),
    /// Everything but these.
    AllBut(&'static [&'static str]),
}

/// Where a kind departs from most: scopes by endpoint, which is empty for the object itself.
pub type Scopes = &'static [(&'static str, Scope)];

impl Scope {
    /// Keeps and resets the same fields.
    const fn without(fields: &'static [&'static str]) -> Self {
        Self::keeping(fields, fields)
    }

    const fn keeping(kept: &'static [&'static str], reset: &'static [&'static str]) -> Self {
        Self { kept, but: &[], reset: Reset::These(reset) }
    }
}

const EVERYTHING: Scope = Scope::without(&[]);
const ALL_BUT_STATUS: Scope = Scope::without(&["/status"]);
/// The status of most built-in kinds takes metadata along.
const STATUS: Scope = Scope { kept: &[""], but: &["/metadata", "/status"], reset: Reset::These(&["/spec"]) };
/// The status of custom kinds is all that can be written there.
const CUSTOM_STATUS: Scope =
    Scope { kept: &[""], but: &["/status"], reset: Reset::These(&["/metadata", "/spec"]) };
/// The status of newer built-in kinds: metadata that users may set is kept too.
const STATUS_ALONE: Scopes = &[(
    "status",
    Scope::keeping(
        &[
            "/spec",
            "/metadata/annotations",
            "/metadata/deletionTimestamp",
            "/metadata/finalizers",
            "/metadata/generation",
            "/metadata/labels",
            "/metadata/ownerReferences",
        ],
        &["/metadata", "/spec"],
    ),
)];

const NAMESPACES: Scopes =
    &[("", Scope::keeping(&["/spec/finalizers", "/status"], &["/status"])), ("finalize", ALL_BUT_STATUS)];

/// A pod's endpoints that change a part of its spec.
const POD_KEPT: &[&str] = &[
    "/spec",
    "/status",
    "/metadata/annotations",
    "/metadata/deletionTimestamp",
    "/metadata/finalizers",
    "/metadata/generation",
    "/metadata/labels",
    "/metadata/ownerReferences",
];
const RESIZED: &[&str] = &[
    "/spec/containers/*/resources",
    "/spec/containers/*/resizePolicy",
    "/spec/initContainers/*/resources",
    "/spec/initContainers/*/resizePolicy",
    "/spec/resources",
];
const PODS: Scopes = &[
    ("status", Scope::without(&["/spec", "/metadata/deletionTimestamp", "/metadata/ownerReferences"])),
    (
        "ephemeralcontainers",
        Scope {
            kept: POD_KEPT,
            but: &["/spec/ephemeralContainers"],
            reset: Reset::AllBut(&["/spec/ephemeralContainers"]),
        },
    ),
    // The resources of the whole pod can be changed there, but nobody comes to own them.
    ("resize", Scope { kept: POD_KEPT, but: RESIZED, reset: Reset::AllBut(RESIZED.split_at(4).0) }),
];

const DEPLOYMENTS: Scopes = &[("status", Scope::without(&["/spec", "/metadata/labels"]))];

/// What was asked of a signer stays as it was asked.
const SIGNING_REQUESTS: Scopes = &[
    ("", Scope::without(&["/spec", "/status"])),
    ("status", Scope::keeping(&["/spec"], &["/spec", "/status/conditions"])),
    (
        "approval",
        Scope {
            kept: &["/spec", "/status"],
            but: &["/status/conditions"],
            reset: Reset::These(&["/spec", "/status/certificate"]),
        },
    ),
];

const API_SERVICES: Scopes = &[(
    "status",
    Scope::keeping(
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

const FLOW_CONTROL: Scopes = &[("status", Scope::without(&["/metadata", "/spec"]))];

/// Where a built-in kind's endpoints depart from most.
pub(super) fn builtin(group: &str, plural: &str) -> Scopes {
    match (group, plural) {
        ("", "namespaces") => NAMESPACES,
        ("", "pods") => PODS,
        ("apps", "deployments") => DEPLOYMENTS,
        ("certificates.k8s.io", "certificatesigningrequests") => SIGNING_REQUESTS,
        ("apiregistration.k8s.io", "apiservices") => API_SERVICES,
        ("flowcontrol.apiserver.k8s.io", _) => FLOW_CONTROL,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies")
        | ("certificates.k8s.io", "podcertificaterequests")
        | ("networking.k8s.io", "servicecidrs")
        | ("resource.k8s.io", "devicetaintrules" | "resourceclaims")
        | ("storage.k8s.io", "csinodes" | "volumeattachments")
        | ("storagemigration.k8s.io", "storageversionmigrations") => STATUS_ALONE,
        _ => &[],
    }
}

impl Kind {
    /// What a write through an endpoint may change and own.
    pub(crate) fn scope(&self, subresource: &str) -> Scope {
        let own = self.rules.scopes.iter().find(|(endpoint, _)| *endpoint == subresource);
        match (own, subresource) {
            (Some((_, scope)), _) => *scope,
            (None, "") if self.has_status() => ALL_BUT_STATUS,
            (None, "status") if self.rules.custom => CUSTOM_STATUS,
            (None, "status") => STATUS,
            (None, _) => EVERYTHING,
        }
    }

    /// What may be owned by writing through an endpoint, in each version.
    pub(crate) fn owned_through(&self, subresource: &str) -> BTreeMap<String, Filter> {
        let filter = match self.scope(subresource).reset {
            Reset::These([]) => return BTreeMap::new(),
            Reset::These(fields) => Filter::all_but(fields),
            Reset::AllBut(fields) => Filter::only(fields),
        };
        self.reset_versions().into_iter().map(|version| (version, filter.clone())).collect()
    }
}
