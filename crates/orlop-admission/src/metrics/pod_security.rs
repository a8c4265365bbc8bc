//! Metrics of pod security, named as in Kubernetes.

use prometheus_client::{
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

use crate::AdmissionRequest;

type Labels<const N: usize> = [(&'static str, String); N];

/// Counts of evaluations, exemptions and errors.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodSecurityMetrics {
    evaluations: Family<Labels<7>, Counter>,
    exemptions: Family<Labels<3>, Counter>,
    errors: Family<Labels<4>, Counter>,
}

impl PodSecurityMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "pod_security_evaluations",
            "Evaluations of policies, not counting ignored or exempt requests",
            self.evaluations.clone(),
        );
        registry.register("pod_security_exemptions", "Exempt requests", self.exemptions.clone());
        registry.register(
            "pod_security_errors",
            "Errors that prevented normal evaluation, fatal ones and others",
            self.errors.clone(),
        );
    }

    /// Counts an evaluation of a level and version, in a mode: `enforce`, `audit` or `warn`.
    pub(crate) fn evaluated(
        &self,
        request: &AdmissionRequest<'_>,
        mode: &str,
        [level, version]: [String; 2],
        is_allowed: bool,
    ) {
        let [operation, resource, subresource] = request_labels(request);
        let decision = if is_allowed { "allow" } else { "deny" };
        let labels = [
            ("decision", decision.to_owned()),
            ("policy_level", level),
            ("policy_version", version),
            ("mode", mode.to_owned()),
            operation,
            resource,
            subresource,
        ];
        self.evaluations.get_or_create(&labels).inc();
    }

    pub(crate) fn exempted(&self, request: &AdmissionRequest<'_>) {
        self.exemptions.get_or_create(&request_labels(request)).inc();
    }

    pub(crate) fn failed(&self, request: &AdmissionRequest<'_>, is_fatal: bool) {
        let [operation, resource, subresource] = request_labels(request);
        let labels = [("fatal", is_fatal.to_string()), operation, resource, subresource];
        self.errors.get_or_create(&labels).inc();
    }
}

fn request_labels(request: &AdmissionRequest<'_>) -> Labels<3> {
    let resource = match request.attributes.resource.as_str() {
        "pods" => "pod",
        "namespaces" => "namespace",
        _ => "controller",
    };
    [
        ("request_operation", request.operation.name().to_lowercase()),
        ("resource", resource.to_owned()),
        ("subresource", request.attributes.subresource_name().to_owned()),
    ]
}
