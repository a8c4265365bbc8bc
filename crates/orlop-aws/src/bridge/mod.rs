//! The Bridge: kinds that take several steps of several services to become ready.
//!
//! A kind is an enum of phases and a function for each. The reconciler here runs the phases in order, falls through
//! those that hold, and stops at the first that does not; the deletion runs their clean-up in reverse. A phase makes
//! objects of ACK's kinds (children), calls AWS itself where those kinds do not suffice, and never trusts a message: AWS'
//! own answer decides that a phase holds. `docs/bridge-kinds.md` shows how to write one.
//!
//! Modules from the bottom up: `step`; `work`; `kind`; `certificates`, `records`; one for each kind; `reconcile`.

mod api_gateway_domain;
mod certificates;
mod kind;
mod lambda_permission;
mod metrics;
mod reconcile;
mod records;
mod static_site;
mod step;
mod work;

pub(crate) use kind::BridgeKind;
pub(crate) use metrics::BridgeMetrics;
pub(crate) use reconcile::Bridge;
pub(crate) use work::CREATED_BY;

/// Stands for the service in keys of the Bridge's objects.
pub(crate) const SERVICE: &str = "bridge";

/// Every kind.
pub(crate) static KINDS: &[&dyn BridgeKind] =
    &[&api_gateway_domain::ApiGatewayDomain, &lambda_permission::LambdaPermission, &static_site::StaticSite];

/// Finds a kind by its name.
pub(crate) fn find(kind: &str) -> Option<&'static dyn BridgeKind> {
    KINDS.iter().copied().find(|known| known.descriptor().kind == kind)
}
